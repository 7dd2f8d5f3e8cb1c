/** Runs that branched off each other or wait for each other, as lines of a tree. Pure. */

import type { components } from "@/api/schema";

type TreeNode = components["schemas"]["TreeNode"];
type TreeEdge = components["schemas"]["TreeEdge"];
export type Branch = { run: TreeNode; depth: number; edge?: TreeEdge };

/** Each run below the first of those that it came from, with what leads there; those that came from none at the top. */
export function branches(runs: TreeNode[], edges: TreeEdge[]): Branch[] {
	const known = new Set(runs.map((run) => run.run_id));
	const into = new Map<string, TreeEdge>();
	for (const edge of edges) if (known.has(edge.from) && !into.has(edge.to)) into.set(edge.to, edge);
	const below = new Map<string, TreeNode[]>();
	const top: TreeNode[] = [];
	for (const run of runs) {
		const from = into.get(run.run_id)?.from;
		if (!from) top.push(run);
		else below.set(from, [...(below.get(from) ?? []), run]);
	}
	const lines: Branch[] = [];
	const seen = new Set<string>();
	const put = (run: TreeNode, depth: number) => {
		if (seen.has(run.run_id)) return;
		seen.add(run.run_id);
		lines.push({ run, depth, edge: into.get(run.run_id) });
		for (const next of below.get(run.run_id) ?? []) put(next, depth + 1);
	};
	for (const run of [...top, ...runs]) put(run, 0);
	return lines;
}
