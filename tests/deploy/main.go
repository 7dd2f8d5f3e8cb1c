// Reads the files of deployment as those who deploy read them. `./x interop` builds it, together with helm, where there is a Go.
//
//	deploy compose FILE PROFILE...  the project that Compose makes of a file, as JSON
//	deploy manifests <FILE          whether Kubernetes and the Prometheus operator know every field of a chart's manifests; prints how many
package main

import (
	"fmt"
	"os"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

func run(arguments []string) error {
	switch {
	case len(arguments) >= 2 && arguments[0] == "compose":
		return printProject(arguments[1], arguments[2:])
	case len(arguments) == 1 && arguments[0] == "manifests":
		return checkManifests(os.Stdin)
	}
	return fmt.Errorf("want `compose FILE PROFILE...` or `manifests`, not %q", arguments)
}
