import { expect, test } from "vitest";
import { DRAG_TYPE, isDraft, readDragged } from "./dragged";

const dragged = (text: string) => readDragged({ getData: (type) => (type === DRAG_TYPE ? text : "") });

test.each([
	{ kind: "agent", data: { agent: null, task: "" } },
	{ kind: "agent", data: { agent: "react", task: "" } },
	{ kind: "tool", data: { tool: "calculator" } },
	{ kind: "collection", data: { collection: "handbook" } },
	{ kind: "note", data: { text: "" } },
])("given %j of the palette, then it is what is put on the canvas", (draft) => {
	expect(dragged(JSON.stringify(draft))).toEqual(draft);
});

test.each([
	["nothing", ""],
	["no JSON", "{"],
	["no node", "null"],
	["a list", "[]"],
	["words", '"agent"'],
	["another kind", '{"kind":"script","data":{}}'],
	["a node without data", '{"kind":"agent"}'],
	["an unknown key", '{"kind":"note","data":{"text":""},"run":"run_1"}'],
	["a key that reaches for more", '{"kind":"note","data":{"text":""},"__proto__":{"x":1}}'],
	["one inside", '{"kind":"note","data":{"text":"","constructor":{}}}'],
	["a group that is not there", '{"kind":"note","data":{"text":""},"group":"g"}'],
	["a text without an end", JSON.stringify({ kind: "note", data: { text: "x".repeat(20_001) } })],
])("given %s that another page lets be dragged, then it is no node", (_, text) => {
	expect(dragged(text)).toBeNull();
});

test("given a drag, then its name tells whether a node may be meant", () => {
	expect([isDraft({ types: [DRAG_TYPE] }), isDraft({ types: ["text/plain", "Files"] })]).toEqual([true, false]);
});
