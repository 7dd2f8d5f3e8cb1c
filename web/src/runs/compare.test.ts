import { expect, test } from "vitest";
import type { StepView } from "@/api/client";
import { compareSteps } from "./compare";

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
