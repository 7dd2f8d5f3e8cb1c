/** How a node stands out by where its run is; the words on it say it, too. */
const EDGES: Record<string, string> = {
	running: "border-accent",
	waiting_approval: "border-warn",
	succeeded: "border-good",
	failed: "border-bad",
	cancelled: "border-warn",
};

export function edgeOf(selected: boolean, status: string | undefined): string {
	return selected ? "border-accent ring-1 ring-accent" : (EDGES[status ?? ""] ?? "border-line");
}
