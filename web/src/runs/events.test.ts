import { describe, expect, test } from "vitest";
import type { StepView } from "@/api/client";
import { asLines, kindsOf, sinceFirst } from "./events";
import { drawnRows } from "./rows";

const step = (seq: number, kind: string, at: string): StepView => ({ seq, kind, agent: "react", at, text: "a\nb" });
const steps = [
	step(1, "thought", "2026-01-01T00:00:00.000Z"),
	step(2, "tool_call", "2026-01-01T00:00:01.250Z"),
	step(3, "thought", "2026-01-01T00:01:00.000Z"),
];

test("given the events of a run, then each has its kind, its time since the first one and a line of its own", () => {
	expect(kindsOf(steps)).toEqual(["thought", "tool_call"]);
	expect(steps.map((one) => sinceFirst(one, steps[0]))).toEqual(["+0.00 s", "+1.25 s", "+60.00 s"]);
	const lines = asLines(steps).trimEnd().split("\n");
	expect(lines.map((line) => JSON.parse(line))).toEqual(steps);
});

describe("given a list of 5,000 rows", () => {
	test.each([
		["at its beginning", 0, 0],
		["in the middle", 75_000, 2_490],
		["at its end", 150_000 - 560, 4_961],
		["farther than it goes", 1e9, 4_961],
	])("when it is looked at %s, then some forty are drawn", (_, top, first) => {
		const drawn = drawnRows(5_000, 560, top);
		expect(drawn).toMatchObject({ first, last: first + 39 });
	});
	test("when there are few, or it has no height of its own, then all are", () => {
		expect([drawnRows(100, 560, 9_000), drawnRows(5_000, undefined, 0)]).toMatchObject([
			{ first: 0, last: 100 },
			{ first: 0, last: 5_000 },
		]);
	});
});
