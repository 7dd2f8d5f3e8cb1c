import { expect, test } from "vitest";
import type { StepView } from "@/api/client";
import { compareSteps, differs, parting } from "./compare";

const step = (seq: number, given: Partial<StepView>): StepView => ({
	seq,
	kind: "tool_result",
	agent: "react",
	at: "2026-01-01T00:00:00Z",
	...given,
});
const result = (value: unknown) => step(1, { tool: { call_id: "c", name: "clock", arguments: {}, result: value } });

test("given the same steps at other times, they are the same", () => {
	const rows = compareSteps([result({ at: 1 })], [{ ...result({ at: 1 }), at: "2027-01-01T00:00:00Z" }]);
	expect(rows).toEqual([{ seq: 1, left: "tool result: clock at: 1", right: "tool result: clock at: 1", same: true }]);
});

test("given results that differ only far behind, or only in kind, they are not the same", () => {
	const long = "a".repeat(10_000);
	expect(compareSteps([result(`${long}b`)], [result(`${long}c`)])[0]?.same).toBe(false);
	expect(compareSteps([result({ n: 1 })], [result({ n: "1" })])[0]?.same).toBe(false);
});

test("given a run that has ended before the other, what it lacks is empty", () => {
	const rows = compareSteps([], [result(1)]);
	expect([rows[0]?.left, rows[0]?.same]).toEqual(["", false]);
});

const both = (left: number, right: number) =>
	compareSteps(
		Array.from({ length: left }, (_, at) => step(at + 1, { text: `${at}` })),
		Array.from({ length: right }, (_, at) => step(at + 1, { text: `${at}` })),
	);
const ended = { left: false, right: false };

test("given a run that goes on, what it has not got to is no difference", () => {
	const rows = both(6, 0);
	expect(parting(rows, { left: false, right: true })).toBe("As far as both have come, they agree.");
	expect(rows.some((row) => differs(row, { left: false, right: true }))).toBe(false);
	expect(parting(rows, ended)).toBe("They part at step 1 of 6.");
});

test("given a run that goes on, what it said otherwise is a difference", () => {
	const rows = compareSteps([step(1, { text: "a" }), step(2, { text: "b" })], [step(1, { text: "c" })]);
	expect(parting(rows, { left: false, right: true })).toBe("They part at step 1 of 2.");
});

test("given two runs that have ended alike, they say the same", () => {
	expect(parting(both(3, 3), ended)).toBe("They say the same in every step.");
});
