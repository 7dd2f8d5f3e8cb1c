/** Two runs beside each other. Pure. */

import type { StepView } from "@/api/client";

export type ComparedStep = { seq: number; left: string; right: string; same: boolean };

/** A row a step; what one run lacks is empty. Times do not count as a difference. */
export function compareSteps(left: StepView[], right: StepView[]): ComparedStep[] {
	return Array.from({ length: Math.max(left.length, right.length) }, (_, at) => {
		const [a, b] = [words(left[at]), words(right[at])];
		return { seq: at + 1, left: a, right: b, same: a === b };
	});
}

function words(step: StepView | undefined): string {
	if (!step) return "";
	const { kind, text, tool } = step;
	const used = tool ? `${tool.name} ${JSON.stringify(tool.error ?? tool.result ?? tool.arguments)}` : "";
	return [kind.replaceAll("_", " "), text, used].filter(Boolean).join(": ");
}
