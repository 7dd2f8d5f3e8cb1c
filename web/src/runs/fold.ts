/** A run as the page sees it: the fold of what the stream sends. Pure; the same messages give the same state. */

import type { CitationView, RunStatus, RunView, StepView, UsageView } from "@/api/client";
import type { components } from "@/api/schema";

export type RunMessage = components["schemas"]["RunMessage"];

export type LiveRun = {
	runId: string;
	agent: string | null;
	status: RunStatus;
	/** In the order of `seq`, which counts from 1 without gaps. */
	steps: StepView[];
	/** Approval steps that somebody has answered: the stream itself does not say so before the call's result is there. */
	answered: number[];
	/**
	 * Text that the model is writing for step `seq`; gone when the step is there. `heard` before the stream was joined anew:
	 * pieces have no place in the text, so that what comes then takes its place. A model that is asked again writes it from its
	 * beginning; the stream says so.
	 */
	writing: { seq: number; text: string; heard?: "before" } | null;
	result: RunView | null;
};

export const NO_USAGE: UsageView = { prompt_tokens: 0, completion_tokens: 0, total_tokens: 0, cost_usd: null };

export function unknownRun(runId: string): LiveRun {
	return { runId, agent: null, status: "queued", steps: [], answered: [], writing: null, result: null };
}

/** `seq` of the last step: where a lost connection goes on. */
export function lastSeq(run: LiveRun): number {
	return run.steps.at(-1)?.seq ?? 0;
}

export function hasEnded(run: LiveRun): boolean {
	return run.result !== null;
}

/** Applies messages in their order; a step that was seen before changes nothing, and so does one that leaves a gap. */
export function apply(run: LiveRun, ...messages: RunMessage[]): LiveRun {
	const next = { ...run, steps: [...run.steps] };
	for (const message of messages) take(next, message);
	return next;
}

function take(run: LiveRun, message: RunMessage): void {
	switch (message.type) {
		case "start":
			run.agent = message.agent ?? run.agent;
			if (!run.result) run.status = statusOf(run);
			if (run.writing) run.writing = { ...run.writing, heard: "before" };
			return;
		case "step":
			if (message.step.seq !== lastSeq(run) + 1) return;
			run.steps.push(message.step);
			run.agent = message.step.agent;
			if (!run.result) run.status = statusAfter(run, message.step);
			if (run.writing && run.writing.seq <= message.step.seq) run.writing = null;
			return;
		case "token": {
			if (message.seq <= lastSeq(run) || run.result) return;
			const goesOn = run.writing?.seq === message.seq && run.writing.heard !== "before" && !message.restart;
			const before = run.writing && goesOn ? run.writing.text : "";
			run.writing = { seq: message.seq, text: before + message.text };
			return;
		}
		case "final":
			run.agent = message.result.agent ?? run.agent;
			run.status = message.result.status;
			if (message.result.steps.length >= run.steps.length) run.steps = message.result.steps;
			run.writing = null;
			run.result = message.result;
			return;
	}
}

/** Notes that approval steps have been answered, here or elsewhere. */
export function answer(run: LiveRun, steps: number[]): LiveRun {
	const next = { ...run, answered: [...new Set([...run.answered, ...steps])] };
	return next.result || next.status === "queued" ? next : { ...next, status: statusOf(next) };
}

/** The whole run is looked at only where an answer may have ended the waiting. */
function statusAfter(run: LiveRun, step: StepView): RunStatus {
	if (step.kind === "approval") return "waiting_approval";
	return run.status === "waiting_approval" ? statusOf(run) : "running";
}

function statusOf(run: LiveRun): RunStatus {
	return pendingApprovals(run).length > 0 ? "waiting_approval" : "running";
}

/**
 * The approval steps that nobody has answered: somebody is asked whether a call may be made, or, when its tool carries an
 * error, be made again. The call's result says that the answer came.
 */
export function pendingApprovals(run: LiveRun): number[] {
	if (run.result) return [];
	const open = new Map<number, string>();
	for (const { seq, kind, tool } of run.steps) {
		if (!tool) continue;
		if (kind === "approval" && !run.answered.includes(seq)) open.set(seq, tool.call_id);
		if (kind === "tool_result") for (const [asked, call] of open) if (call === tool.call_id) open.delete(asked);
	}
	return [...open.keys()];
}

/** Tokens so far, or of the whole run once it has ended. */
export function usageOf(run: LiveRun): UsageView {
	if (run.result) return run.result.usage;
	return run.steps.reduce<UsageView>((sum, { usage }) => {
		if (!usage) return sum;
		const cost = usage.cost_usd == null ? sum.cost_usd : (sum.cost_usd ?? 0) + usage.cost_usd;
		return {
			prompt_tokens: sum.prompt_tokens + usage.prompt_tokens,
			completion_tokens: sum.completion_tokens + usage.completion_tokens,
			total_tokens: sum.total_tokens + usage.total_tokens,
			cost_usd: cost,
			unpriced_tokens: (sum.unpriced_tokens ?? 0) + (usage.unpriced_tokens ?? 0),
		};
	}, NO_USAGE);
}

export type AnswerPart = { text: string } | { citation: CitationView };

/** An answer in pieces: words, and the numbers that name a source. A number without a source stays words. */
export function answerParts(answer: string, citations: CitationView[]): AnswerPart[] {
	const parts: AnswerPart[] = [];
	let from = 0;
	for (const match of answer.matchAll(/\[(\d{1,3})\]/g)) {
		const citation = citations.find((one) => one.n === Number(match[1]));
		if (!citation) continue;
		if (match.index > from) parts.push({ text: answer.slice(from, match.index) });
		parts.push({ citation });
		from = match.index + match[0].length;
	}
	if (from < answer.length) parts.push({ text: answer.slice(from) });
	return parts;
}
