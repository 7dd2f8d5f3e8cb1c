import { expect, test } from "vitest";
import { drawnOf, isFar, nameFrom } from "./far";

test("given few nodes, or many from afar, all are drawn; of many near ones those in view", () => {
	expect(isFar({ transform: [0, 0, 0.2] })).toBe(true);
	expect(isFar({ transform: [0, 0, 0.5] })).toBe(false);
	expect([drawnOf(50, false), drawnOf(500, true), drawnOf(500, false), drawnOf(2_000, true)]).toEqual([
		"all",
		"all",
		"visible",
		"visible",
	]);
});

test("a name is cut where it would not fit", () => {
	expect(nameFrom("react")).toBe("react");
	expect(nameFrom("x".repeat(40))).toHaveLength(16);
});
