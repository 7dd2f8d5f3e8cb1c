import { describe, expect, test } from "vitest";
import { intoView, lift, uncovered } from "./view";

const rect = (left: number, top: number, right: number, bottom: number) => ({ left, top, right, bottom });
const view = rect(200, 100, 1000, 700);

describe("the view", () => {
	test.each([
		["in the middle of it", rect(400, 200, 500, 300), { x: 0, y: 0 }],
		["below the settings at its right", rect(900, 200, 1100, 300), { x: -112, y: 0 }],
		["above and left of it", rect(150, 50, 250, 150), { x: 62, y: 62 }],
		["that goes on below it", rect(400, 500, 500, 800), { x: 0, y: -112 }],
		["that is longer than it", rect(400, 50, 500, 900), { x: 0, y: 0 }],
	])("given a node %s, it moves as little as shows all of the node", (_, box, moved) => {
		expect(intoView(box, view)).toEqual(moved);
	});

	test("given settings that lie over the canvas, ends above them", () => {
		expect(uncovered(view, rect(0, 500, 1000, 700))).toEqual(rect(200, 100, 1000, 500));
	});

	test.each([undefined, rect(1000, 40, 1256, 700)])("given settings at %j, is the whole canvas", (settings) => {
		expect(uncovered(view, settings)).toEqual(view);
	});

	test("given a canvas that fits, begins at its top, and one that was made smaller is left in the middle", () => {
		expect([lift(300, 1), lift(20, 1), lift(300, 0.5)]).toEqual([244, 0, 0]);
	});
});
