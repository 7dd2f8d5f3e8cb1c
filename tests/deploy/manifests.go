package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"

	monitoring "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	networking "k8s.io/api/networking/v1"
	policy "k8s.io/api/policy/v1"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/json"
	"sigs.k8s.io/yaml"
)

// kinds are what the chart makes. KEDA's are left out: its types come with all of KEDA.
var kinds = map[string]func() any{
	"apps/v1/Deployment":                      func() any { return new(apps.Deployment) },
	"apps/v1/StatefulSet":                     func() any { return new(apps.StatefulSet) },
	"v1/ConfigMap":                            func() any { return new(core.ConfigMap) },
	"v1/Service":                              func() any { return new(core.Service) },
	"networking.k8s.io/v1/Ingress":            func() any { return new(networking.Ingress) },
	"policy/v1/PodDisruptionBudget":           func() any { return new(policy.PodDisruptionBudget) },
	"monitoring.coreos.com/v1/PodMonitor":     func() any { return new(monitoring.PodMonitor) },
	"monitoring.coreos.com/v1/PrometheusRule": func() any { return new(monitoring.PrometheusRule) },
}

// unchecked are known by name only.
var unchecked = map[string]bool{"keda.sh/v1alpha1/ScaledObject": true}

func checkManifests(source io.Reader) error {
	reader := utilyaml.NewYAMLReader(bufio.NewReader(source))
	checked := 0
	for {
		document, err := reader.Read()
		if errors.Is(err, io.EOF) {
			fmt.Println(checked)
			return nil
		}
		if err != nil {
			return err
		}
		known, err := checkManifest(document)
		if err != nil {
			return err
		}
		if known {
			checked++
		}
	}
}

// checkManifest refuses fields that its kind has not, and values of another type. An empty document is none.
func checkManifest(document []byte) (bool, error) {
	var head struct{ APIVersion, Kind string }
	if err := yaml.Unmarshal(document, &head); err != nil {
		return false, err
	}
	kind := head.APIVersion + "/" + head.Kind
	if kind == "/" || unchecked[kind] {
		return false, nil
	}
	empty, ok := kinds[kind]
	if !ok {
		return false, fmt.Errorf("the kind %q is not one that the chart makes; add it to `kinds`", kind)
	}
	text, err := yaml.YAMLToJSONStrict(document)
	if err != nil {
		return false, fmt.Errorf("%s: %w", kind, err)
	}
	strict, err := json.UnmarshalStrict(text, empty())
	if err != nil {
		return false, fmt.Errorf("%s: %w", kind, err)
	}
	if len(strict) > 0 {
		return false, fmt.Errorf("%s: %w\n%s", kind, errors.Join(strict...), document)
	}
	return true, nil
}
