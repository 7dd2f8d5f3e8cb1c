import { expect, test } from "vitest";
import { type CanvasNode, emptyCanvas } from "./document";
import { freePlace } from "./place";

const size = { width: 100, height: 40 };
const note = (id: string, x: number, y: number): CanvasNode => ({ id, kind: "note", x, y, data: { text: "" } });
const given = (...nodes: CanvasNode[]) => ({ ...emptyCanvas(), nodes });

test("given nothing there, a node stands where it was meant to", () => {
	expect(freePlace(given(), { x: 3, y: 4, ...size }, () => size)).toEqual({ x: 3, y: 4 });
});

test("given nodes one after the other at the same place, none covers another", () => {
	const nodes: CanvasNode[] = [];
	for (let n = 0; n < 100; n++) {
		const { x, y } = freePlace(given(...nodes), { x: 0, y: 0, ...size }, () => size);
		for (const one of nodes) expect(Math.abs(one.x - x) >= 100 || Math.abs(one.y - y) >= 40).toBe(true);
		nodes.push(note(`n${n}`, x, y));
	}
});

test("given a node in a group, its place on the canvas is what counts", () => {
	const group: CanvasNode = { id: "g", kind: "group", x: 1000, y: 0, data: { title: "" } };
	const inside = { ...note("n", 0, 0), group: "g" };
	expect(freePlace(given(group, inside), { x: 0, y: 0, ...size }, () => size)).toEqual({ x: 0, y: 0 });
	expect(freePlace(given(group, inside), { x: 1000, y: 0, ...size }, () => size).y).toBeGreaterThan(0);
});
