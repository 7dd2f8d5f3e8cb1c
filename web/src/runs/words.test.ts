import { expect, test } from "vitest";
import { brief, whoRan } from "./words";

test("given what tools take and give, one line of words says it", () => {
	expect(brief(undefined)).toBe("");
	expect(brief(null)).toBe("");
	expect(brief("as it is")).toBe("as it is");
	expect(brief(7)).toBe("7");
	expect(brief([1, "two"])).toBe('[1,"two"]');
	expect(brief({ expression: "6 * 7", places: 2, deep: { a: [1] } })).toBe(
		'expression: 6 * 7, places: 2, deep: {"a":[1]}',
	);
	expect(brief({ __proto__: null, constructor: "x" })).toBe("constructor: x");
});

test("given more than a line holds, it is cut and says so", () => {
	const text = brief({ text: "a".repeat(1_000) });
	expect([text.length, text.endsWith("…")]).toEqual([161, true]);
});

test.each([
	[{ agent: "react" }, "react"],
	[{ agent: null }, "supervisor"],
	[{ agent: "react", chain: { name: "react 1" } }, "react 1"],
	[{ agent: "react", chain: { name: "react" } }, "react"],
	[{ agent: "react", chain: { name: "writer" } }, "writer · react"],
	[{ agent: "react", chain: { name: "reactive" } }, "reactive · react"],
	[{ agent: "critic", chain: { name: "react 1" } }, "react 1 · critic"],
])("given the run %j, then its agent is %s, and nothing is said twice", (run, who) => {
	expect(whoRan(run)).toBe(who);
});
