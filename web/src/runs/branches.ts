/** Runs that branched off each other, as lines of a tree. Pure. */

import type { components } from "@/api/schema";

type TreeNode = components["schemas"]["TreeNode"];
export type Branch = { run: TreeNode; depth: number };

/** Each run below the one that it branched off; those whose origin is not there at the top. */
export function branches(runs: TreeNode[]): Branch[] {
	const known = new Set(runs.map((run) => run.run_id));
	const below = new Map<string, TreeNode[]>();
	const top: TreeNode[] = [];
	for (const run of runs) {
		const from = run.forked_from?.run_id;
		if (!from || !known.has(from)) top.push(run);
		else below.set(from, [...(below.get(from) ?? []), run]);
	}
	const lines: Branch[] = [];
	const seen = new Set<string>();
	const put = (run: TreeNode, depth: number) => {
		if (seen.has(run.run_id)) return;
		seen.add(run.run_id);
		lines.push({ run, depth });
		for (const next of below.get(run.run_id) ?? []) put(next, depth + 1);
	};
	for (const run of [...top, ...runs]) put(run, 0);
	return lines;
}
