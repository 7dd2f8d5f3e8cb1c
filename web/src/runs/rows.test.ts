import { describe, expect, test } from "vitest";
import { drawnRows, ROW_PX } from "./rows";

const NONE = { at: -1, extra: 0 };

test("given a short list, or one whose height is not known, then all of it is drawn", () => {
	expect(drawnRows(100, 180, 0, NONE)).toEqual({ first: 0, last: 100, above: 0, below: 0 });
	expect(drawnRows(5_000, undefined, 0, NONE)).toEqual({ first: 0, last: 5_000, above: 0, below: 0 });
});

describe.each([
	["no row is open", NONE],
	["the first row is open", { at: 0, extra: 900 }],
	["one in the middle is open", { at: 200, extra: 900 }],
	["one is open that is less than a row higher", { at: 200, extra: 7 }],
	["the last row is open", { at: 399, extra: 900 }],
])("given a long list of which %s", (_, tall) => {
	const [rows, height] = [400, 560];
	const whole = rows * ROW_PX + tall.extra;
	const end = (row: number) => (row + 1) * ROW_PX + (tall.at >= 0 && row >= tall.at ? tall.extra : 0);

	test("then wherever it is scrolled, what is in sight is drawn, few rows are, and the list is as high as all of them", () => {
		for (let top = 0; top <= whole - height; top += 11) {
			const { first, last, above, below } = drawnRows(rows, height, top, tall);
			const isDrawn = tall.at >= first && tall.at < last;
			const inSight = Array.from({ length: rows }, (_, row) => row).filter((row) => {
				return end(row) > top && (row === 0 ? 0 : end(row - 1)) < top + height;
			});
			expect([first <= (inSight[0] ?? 0), last > (inSight.at(-1) ?? 0)], `at ${top}`).toEqual([true, true]);
			expect(last - first).toBeLessThan(60);
			expect(above + (last - first) * ROW_PX + (isDrawn ? tall.extra : 0) + below, `at ${top}`).toBe(whole);
			// What is drawn lies where it would lie if all were.
			expect(above, `at ${top}`).toBe(first === 0 ? 0 : end(first - 1));
		}
	});

	test("then a list that became shorter is drawn to its end", () => {
		expect(drawnRows(rows, height, 1e6, tall).last).toBe(rows);
	});
});
