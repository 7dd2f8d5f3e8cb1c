/** Findings of an analysis: filtered, grouped, the worst first. Pure. */

import type { FindingView, Severity } from "@/api/shapes";

export const SEVERITIES: Severity[] = ["critical", "high", "medium", "low", "info"];
const RANK = new Map(SEVERITIES.map((severity, at) => [severity, at]));

export type Filter = { text: string; tool: string; severity: string };
export const NO_FILTER: Filter = { text: "", tool: "", severity: "" };
export type Grouping = "file" | "rule" | "tool";
export type FindingGroup = { name: string; worst: Severity; findings: FindingView[] };

export function filtered(findings: FindingView[], { text, tool, severity }: Filter): FindingView[] {
	const words = text.trim().toLowerCase();
	return findings.filter(
		(one) =>
			(!tool || one.tool === tool) &&
			// A severity means it and all that is worse.
			(!severity || rank(one.severity) <= rank(severity as Severity)) &&
			(!words || `${one.file} ${one.rule} ${one.message}`.toLowerCase().includes(words)),
	);
}

/** The group with the worst finding first, then the one with more of them; within a group likewise, by place. */
export function grouped(findings: FindingView[], by: Grouping): FindingGroup[] {
	const groups = new Map<string, FindingView[]>();
	for (const finding of findings) {
		const name = by === "rule" ? `${finding.tool} ${finding.rule}` : finding[by];
		const group = groups.get(name);
		if (group) group.push(finding);
		else groups.set(name, [finding]);
	}
	return [...groups]
		.map(([name, members]) => {
			const sorted = members.sort(worstFirst);
			return { name, worst: sorted[0]?.severity ?? "info", findings: sorted };
		})
		.sort(
			(a, b) => rank(a.worst) - rank(b.worst) || b.findings.length - a.findings.length || a.name.localeCompare(b.name),
		);
}

function worstFirst(a: FindingView, b: FindingView): number {
	return rank(a.severity) - rank(b.severity) || a.file.localeCompare(b.file) || a.line - b.line || a.column - b.column;
}

/** A severity that this page does not know stands last. */
function rank(severity: Severity): number {
	return RANK.get(severity) ?? SEVERITIES.length;
}

export type Stack = { name: string; total: number; parts: { severity: Severity; count: number }[] };

/** How many findings of each severity a file or tool has, those with the most first. */
export function stacked(findings: FindingView[], by: "file" | "tool"): Stack[] {
	return grouped(findings, by)
		.map(({ name, findings: members }) => ({
			name,
			total: members.length,
			parts: SEVERITIES.map((severity) => ({
				severity,
				count: members.filter((one) => one.severity === severity).length,
			})).filter(({ count }) => count > 0),
		}))
		.sort((a, b) => b.total - a.total || a.name.localeCompare(b.name));
}
