/** What a run did, as the log has it. Pure. */

import type { StepView } from "@/api/client";

/** The kinds that there are, in the order in which they came first. */
export function kindsOf(steps: StepView[]): string[] {
	return [...new Set(steps.map((step) => step.kind))];
}

/** How long after the run's first event one came. */
export function sinceFirst(step: StepView, first: StepView | undefined): string {
	const gone = Math.max(0, Date.parse(step.at) - Date.parse(first?.at ?? step.at));
	return `+${(gone / 1000).toFixed(2)} s`;
}

/** One JSON object a line, for other programs. */
export function asLines(steps: StepView[]): string {
	return steps.map((step) => `${JSON.stringify(step)}\n`).join("");
}
