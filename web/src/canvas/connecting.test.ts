import { expect, test } from "vitest";
import { meant, reachOf, snapRadius } from "./connecting";
import { type CanvasDocument, emptyCanvas } from "./document";

const at = (zoom: number) => reachOf({ transform: [0, 0, zoom] });

test("given any zoom, what is hit is on the screen as large as near by, and at most half as large again", () => {
	for (let zoom = 0.1; zoom <= 1; zoom += 0.01) {
		expect(at(zoom) * zoom).toBeGreaterThan(0.999);
		expect(at(zoom) * zoom).toBeLessThan(1.5);
	}
	expect([at(2), at(1), at(0.5), at(0.25)]).toEqual([1, 1, 2, 4]);
	expect(snapRadius(at(0.25)) * 0.25).toBe(20);
});

test("given a wheel that turns a little, then nothing is measured anew", () => {
	expect(at(0.3)).toBe(at(0.32));
});

const canvas: CanvasDocument = {
	...emptyCanvas(),
	nodes: [
		{ id: "a", kind: "agent", x: 0, y: 0, data: { agent: "react", task: "" } },
		{ id: "t", kind: "tool", x: 0, y: 0, data: { tool: "clock" } },
		{ id: "g", kind: "group", x: 0, y: 0, width: 9, height: 9, data: { title: "" } },
	],
};

test("given a connection that ends on a node, then it goes the way in which it was drawn", () => {
	expect(meant(canvas, { nodeId: "t", type: "source" }, "a")).toEqual({ from: "t", to: "a" });
	expect(meant(canvas, { nodeId: "a", type: "target" }, "t")).toEqual({ from: "t", to: "a" });
});

test("given one that ends on nothing, on a group or where it began, then none is meant", () => {
	for (const onto of [undefined, "gone", "g", "t"]) {
		expect(meant(canvas, { nodeId: "t", type: "source" }, onto)).toBeNull();
	}
});
