import { describe, expect, test } from "vitest";
import { type CanvasNode, emptyCanvas, nodeOf, placeOf } from "./document";
import { regrouped } from "./groups";

const group = (id: string, x: number, size: number): CanvasNode => ({
	id,
	kind: "group",
	x,
	y: 0,
	width: size,
	height: size,
	data: { title: id },
});
const note = (id: string, x: number, y: number, inside?: string): CanvasNode => ({
	id,
	kind: "note",
	x,
	y,
	width: 100,
	height: 100,
	...(inside ? { group: inside } : {}),
	data: { text: "" },
});
const canvas = (...nodes: CanvasNode[]) => ({ ...emptyCanvas(), nodes });

describe("given a node that was dragged", () => {
	test.each([
		["into a group", note("n", 60, 60), "g"],
		["with its corner alone into a group", note("n", 380, 380), undefined],
		["out of its group", note("n", 500, 10, "g"), undefined],
		["within its group", note("n", 20, 20, "g"), "g"],
		["from its group into another one", note("n", 1_010, 10, "g"), "other"],
		["onto a group that lies in front of a larger one", note("n", 2_010, 10), "small"],
	])("%s, then it lies in the one that holds its middle, and where it was", (_, node, expected) => {
		const before = canvas(
			group("large", 2_000, 900),
			group("g", 0, 400),
			group("other", 1_000, 400),
			group("small", 2_000, 200),
			node,
		);
		const after = regrouped(before, new Set(["n"]));
		const moved = nodeOf(after, "n") as CanvasNode;
		expect(moved.group).toBe(expected);
		expect(placeOf(after, moved)).toEqual(placeOf(before, node));
	});
});

test("given a group that was dragged onto another one, or what was not dragged, then all is as it was", () => {
	const before = canvas(group("g", 0, 400), group("other", 0, 300), note("in", 500, 0, "g"), note("beside", 60, 60));
	expect(regrouped(before, new Set(["other"]))).toBe(before);
	expect(regrouped(before, new Set(["g", "in"]))).toBe(before);
});
