import { describe, expect, test } from "vitest";
import type { RunView, StepView } from "@/api/client";
import {
	answer,
	answerParts,
	apply,
	hasEnded,
	lastSeq,
	pendingApprovals,
	type RunMessage,
	unknownRun,
	usageOf,
} from "./fold";

const usage = (total: number) => ({
	prompt_tokens: total - 1,
	completion_tokens: 1,
	total_tokens: total,
	cost_usd: null,
});
const step = (seq: number, kind = "thought"): StepView => ({
	seq,
	kind,
	agent: "react",
	text: `step ${seq}`,
	at: "2026-01-01T00:00:00Z",
});
const stepped = (seq: number): RunMessage => ({ type: "step", step: step(seq) });
const final = (steps: StepView[]): RunMessage => ({
	type: "final",
	result: {
		run_id: "r",
		status: "succeeded",
		steps,
		citations: [],
		usage: usage(9),
		namespace: "default",
		task: "t",
		created_at: "2026-01-01T00:00:00Z",
		answer: "done",
	} as RunView,
});

describe("the fold of a run's messages", () => {
	test("given steps in order, all are there and the last one says where to go on", () => {
		const run = apply(unknownRun("r"), { type: "start", run_id: "r" }, stepped(1), stepped(2));
		expect([run.status, lastSeq(run)]).toEqual(["running", 2]);
	});

	test("given a step twice or behind a gap, nothing changes", () => {
		const run = apply(unknownRun("r"), stepped(1), stepped(1), stepped(3));
		expect(run.steps.map((one) => one.seq)).toEqual([1]);
	});

	test("given every split of the stream into connections, the state is the same", () => {
		const messages = [stepped(1), stepped(2), stepped(3), final([step(1), step(2), step(3)])];
		const whole = apply(unknownRun("r"), ...messages);
		for (let cut = 0; cut <= messages.length; cut++) {
			const first = apply(unknownRun("r"), ...messages.slice(0, cut));
			// The second connection begins one step earlier, as after a lost acknowledgement.
			expect(apply(first, ...messages.slice(Math.max(0, cut - 1)))).toEqual(whole);
		}
	});

	test("given tokens, the text grows until its step is there", () => {
		const token = (seq: number, text: string): RunMessage => ({ type: "token", seq, text });
		const writing = apply(unknownRun("r"), stepped(1), token(2, "Hel"), token(2, "lo"));
		expect(writing.writing).toEqual({ seq: 2, text: "Hello" });
		expect(apply(writing, stepped(2), token(2, "late")).writing).toBeNull();
	});

	test("given a text that is written again, when another worker took the run over, then it is there once", () => {
		const token = (text: string, restart?: true): RunMessage => ({ type: "token", seq: 2, text, restart });
		const taken = apply(unknownRun("r"), stepped(1), token("It was"), token("It ", true), token("is so"));
		expect(taken.writing).toEqual({ seq: 2, text: "It is so" });
		expect(apply(taken, token("No", true)).writing).toEqual({ seq: 2, text: "No" });
	});

	describe("given a connection that is lost in the middle of a text", () => {
		const start: RunMessage = { type: "start", run_id: "r" };
		const token = (text: string): RunMessage => ({ type: "token", seq: 2, text });
		const lost = apply(unknownRun("r"), start, stepped(1), token("Hel"), token("lo "));

		test("when it is joined again, then the text stays until more of it comes, which takes its place", () => {
			const joined = apply(lost, start);
			expect(joined.writing?.text).toBe("Hello ");
			const again = apply(joined, token("Hello "), token("world"));
			expect(again.writing).toEqual({ seq: 2, text: "Hello world" });
		});
		test("when it is lost once more, then the text is there once", () => {
			expect(apply(lost, start, token("Hello "), start, start, token("Hello you")).writing?.text).toBe("Hello you");
		});
		test("when its step comes first, then the step has the text", () => {
			expect(apply(lost, start, stepped(2)).writing).toBeNull();
			expect(apply(lost, start, stepped(2), { type: "token", seq: 3, text: "So" }).writing?.text).toBe("So");
		});
	});

	test("given the end, the result counts and later messages do not bring the run back", () => {
		const run = apply(unknownRun("r"), stepped(1), final([step(1)]), { type: "start", run_id: "r" });
		expect([hasEnded(run), run.status, usageOf(run).total_tokens]).toEqual([true, "succeeded", 9]);
	});

	test("given prices of some steps, the run so far costs what is known, and nothing where none is", () => {
		const priced = (seq: number, cost_usd: number | null): RunMessage => ({
			type: "step",
			step: { ...step(seq), usage: { ...usage(10), cost_usd } },
		});
		const cost = (...costs: (number | null)[]) =>
			usageOf(apply(unknownRun("r"), ...costs.map((one, at) => priced(at + 1, one)))).cost_usd;
		expect([cost(0.25, null, 0.5), cost(null, null), cost(0)]).toEqual([0.75, null, 0]);
		const unpriced = [1, 2].map(
			(seq): RunMessage => ({ type: "step", step: { ...step(seq), usage: { ...usage(10), unpriced_tokens: 10 } } }),
		);
		expect(usageOf(apply(unknownRun("r"), ...unpriced)).unpriced_tokens).toBe(20);
	});

	test("given an approval without a decision, the run waits", () => {
		const asked: StepView = { ...step(1, "approval"), tool: { call_id: "c", name: "mail", arguments: {} } };
		expect(apply(unknownRun("r"), { type: "step", step: asked }).status).toBe("waiting_approval");
		const again: StepView = { ...asked, tool: { call_id: "c", name: "mail", arguments: {}, error: "outcome unknown" } };
		expect(apply(unknownRun("r"), { type: "step", step: again }).status).toBe("waiting_approval");
	});

	describe("given two calls that wait for a person", () => {
		const asks = (seq: number, kind: string, call: string): RunMessage => ({
			type: "step",
			step: { ...step(seq, kind), tool: { call_id: call, name: "mail", arguments: {} } },
		});
		const both = apply(unknownRun("r"), asks(1, "approval", "a"), asks(2, "approval", "b"));

		test("an answered one is asked no more, and the run waits for the other", () => {
			const one = answer(both, [1]);
			expect([pendingApprovals(one), one.status]).toEqual([[2], "waiting_approval"]);
			const none = answer(one, [2, 1]);
			expect([pendingApprovals(none), none.status]).toEqual([[], "running"]);
		});
		test("a result says that its answer came from elsewhere", () => {
			const one = apply(both, asks(3, "tool_result", "b"));
			expect([pendingApprovals(one), one.status]).toEqual([[1], "waiting_approval"]);
			expect(apply(one, asks(4, "tool_result", "a")).status).toBe("running");
		});
		test("a joined stream and other steps change nothing of it", () => {
			const joined = apply(both, { type: "start", run_id: "r" }, stepped(3));
			expect([pendingApprovals(joined), joined.status]).toEqual([[1, 2], "waiting_approval"]);
		});
		test("the end ends the waiting", () => {
			expect(pendingApprovals(apply(both, final(both.steps)))).toEqual([]);
		});
	});

	test("given 5,000 steps one by one, each costs about the same", () => {
		let run = unknownRun("r");
		run = apply(run, ...Array.from({ length: 5_000 }, (_, at) => stepped(at + 1)));
		expect(lastSeq(run)).toBe(5_000);
	});
});

describe("an answer", () => {
	const citation = {
		n: 1,
		chunk_id: "c",
		document_id: "d",
		source: "a.md",
		quote: "q",
		span: { start: 0, end: 1 },
		supported: true,
	};

	test("is words and the numbers that have a source; other numbers stay words", () => {
		expect(answerParts("12 euros [1], not [7].", [citation])).toEqual([
			{ text: "12 euros " },
			{ citation },
			{ text: ", not [7]." },
		]);
	});

	test.each(["<img src=x onerror=alert(1)>", "![x](http://evil/x.png)", "[link](javascript:alert(1))"])(
		"%s is words",
		(text) => {
			expect(answerParts(text, [citation])).toEqual([{ text }]);
		},
	);
});
