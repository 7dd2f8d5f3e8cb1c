import { describe, expect, test } from "vitest";
import { around, mark, sameWords } from "./text";

describe("a marked place", () => {
	const text = "\uFEFFaäß€𝄞z";
	const size = new TextEncoder().encode(text).length;
	const boundaries = [0, 3, 4, 6, 8, 11, 15, 16];

	test("is cut at bytes, and the pieces are the text", () => {
		for (const start of boundaries) {
			for (const end of boundaries.filter((one) => one >= start)) {
				const { before, marked, after } = mark(text, 0, { start, end });
				expect(before + marked + after).toBe(text);
				expect(new TextEncoder().encode(before).length).toBe(start);
				expect(new TextEncoder().encode(marked).length).toBe(end - start);
			}
		}
	});
	test("counts from where the part begins", () => {
		expect(mark("cdef", 102, { start: 103, end: 105 })).toEqual({ before: "c", marked: "de", after: "f" });
	});
	test.each([
		[{ start: 0, end: 50 }, ""],
		[{ start: 200, end: 300 }, ""],
		[{ start: 90, end: 104 }, "cd"],
		[{ start: 104, end: 900 }, "ef"],
		[null, ""],
	])("of %j only what lies in the part is marked", (span, marked) => {
		expect(mark("cdef", 102, span).marked).toBe(marked);
		expect(mark(text, 0, { start: size, end: size }).marked).toBe("");
	});
	test("is the cited one when its words are", () => {
		expect(sameWords("a  b\n c", "a b c")).toBe(true);
		expect(sameWords("a b", "a c")).toBe(false);
	});
	test("has text around it, from the beginning at the earliest", () => {
		expect(around({ start: 10, end: 20 }, 100)).toEqual({ start: 0, end: 100 });
		expect(around({ start: 1_000, end: 5_000 }, 100)).toEqual({ start: 950, end: 5_050 });
		expect(around(null, 100)).toEqual({ start: 0, end: 100 });
	});
});
