/** Two runs beside each other. Pure. */

import type { StepView } from "@/api/client";
import { inWords } from "./words";

export type ComparedStep = { seq: number; left: string; right: string; same: boolean };

/** A row a step; what one run lacks is empty. Times do not count as a difference. */
export function compareSteps(left: StepView[], right: StepView[]): ComparedStep[] {
	return Array.from({ length: Math.max(left.length, right.length) }, (_, at) => {
		const [a, b] = [left[at], right[at]];
		return { seq: at + 1, left: words(a), right: words(b), same: content(a) === content(b) };
	});
}

/** What must agree for two steps to say the same. */
function content(step: StepView | undefined): string {
	if (!step) return "";
	const { kind, text, tool } = step;
	return JSON.stringify([kind, text, tool?.name, tool?.arguments, tool?.result, tool?.error]);
}

function words(step: StepView | undefined): string {
	if (!step) return "";
	const { kind, text, tool } = step;
	const used = tool ? `${tool.name} ${tool.error ?? inWords(tool.result ?? tool.arguments)}` : "";
	return [kind.replaceAll("_", " "), text, used].filter(Boolean).join(": ");
}
