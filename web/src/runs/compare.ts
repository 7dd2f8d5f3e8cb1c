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

/** Which of the two runs goes on: what it lacks may still come. */
export type Going = { left: boolean; right: boolean };

/** Whether the two say different things here; a run that goes on does not differ in what it has not got to. */
export function differs({ left, right, same }: ComparedStep, going: Going): boolean {
	return !same && !(left === "" && going.left) && !(right === "" && going.right);
}

/** Where two runs part, in words; nothing false of one that goes on. */
export function parting(rows: ComparedStep[], going: Going): string {
	const first = rows.find((row) => differs(row, going));
	if (first) return `They part at step ${first.seq} of ${rows.length}.`;
	return going.left || going.right ? "As far as both have come, they agree." : "They say the same in every step.";
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
