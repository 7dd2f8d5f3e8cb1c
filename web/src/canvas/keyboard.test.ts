import { describe, expect, test } from "vitest";
import { type Command, commandOf, type Pressed, type Where } from "./keyboard";

const ctrl = (key: string, shiftKey = false): Pressed => ({ key, ctrlKey: true, metaKey: false, shiftKey });
const cmd = (key: string, shiftKey = false): Pressed => ({ key, ctrlKey: false, metaKey: true, shiftKey });
const plain = (key: string): Pressed => ({ key, ctrlKey: false, metaKey: false, shiftKey: false });
const BARE: Where = { covered: false, typing: false, marked: false };

/** Every key of the canvas, with what it does on it. */
const KEYS: [string, string, boolean, Command][] = [
	["s", "save", false, "save"],
	["o", "open", false, "open"],
	["k", "search", false, "search"],
	["Enter", "run all", true, "run all"],
	[".", "stop all", false, "stop all"],
	["z", "undo", false, "undo"],
	["Z", "redo", true, "redo"],
	["y", "redo", false, "redo"],
	["c", "copy", false, "copy"],
	["x", "cut", false, "cut"],
	["v", "paste", false, "paste"],
	["d", "duplicate", false, "duplicate"],
	["g", "group", false, "group"],
	["G", "dissolve", true, "dissolve"],
	["a", "select all", false, "select all"],
];
const ANYWHERE: Command[] = ["save", "open", "search", "run all", "stop all"];

describe.each(KEYS)("given %s with Ctrl or Cmd (%s)", (key, _, shift, command) => {
	test("when nothing covers the canvas, then it acts", () => {
		expect([commandOf(ctrl(key, shift), BARE), commandOf(cmd(key, shift), BARE)]).toEqual([command, command]);
	});

	test("when a dialog or a menu is in front, then nothing happens to the canvas, wherever the key goes", () => {
		for (const typing of [false, true])
			for (const marked of [false, true])
				for (const press of [ctrl, cmd])
					expect([null, "nothing"]).toContain(commandOf(press(key, shift), { covered: true, typing, marked }));
	});

	test("when it is typed into a field, then only what means the same there acts", () => {
		const expected = ANYWHERE.includes(command) ? command : null;
		expect(commandOf(ctrl(key, shift), { ...BARE, typing: true })).toBe(expected);
	});
});

test("given a dialog, then the browser does not open or save the page instead, and its fields keep their own keys", () => {
	const covered: Where = { ...BARE, covered: true, typing: true };
	expect([commandOf(ctrl("s"), covered), commandOf(ctrl("o"), covered)]).toEqual(["nothing", "nothing"]);
	expect(["z", "c", "x", "v", "a"].map((key) => commandOf(ctrl(key), covered))).toEqual([null, null, null, null, null]);
});

test("given words that are marked, then they are what is copied and cut, and all else acts", () => {
	const marked: Where = { ...BARE, marked: true };
	expect([commandOf(ctrl("c"), marked), commandOf(ctrl("x"), marked), commandOf(ctrl("d"), marked)]).toEqual([
		null,
		null,
		"duplicate",
	]);
});

test("given F2, then it names an agent only where nothing is typed and nothing is in front", () => {
	const wheres: Where[] = [BARE, { ...BARE, typing: true }, { ...BARE, covered: true }];
	expect(wheres.map((where) => commandOf(plain("F2"), where))).toEqual(["name", null, null]);
});

test("given keys that are none of the canvas's, then they are left alone", () => {
	expect(["a", "s", "Enter", "Escape"].map((key) => commandOf(plain(key), BARE))).toEqual([null, null, null, null]);
	expect([commandOf(ctrl("Enter"), BARE), commandOf(ctrl("p"), BARE)]).toEqual([null, null]);
});
