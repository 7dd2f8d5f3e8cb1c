import { describe, expect, test } from "vitest";
import { bodyOf, NO_WISHES, words } from "./asked";

describe("what is asked of a rewrite", () => {
	test("is the file alone where nothing else is said", () => {
		expect(bodyOf({ file: " src/a.py ", ...NO_WISHES })).toEqual({ body: { file: "src/a.py" }, problem: null });
		const blank = { instruction: "  ", mayRemove: " , ", candidates: "1", tests: " " };
		expect(bodyOf({ file: "a b.py", ...blank }).body).toEqual({ file: "a b.py" });
	});
	test("has all that is wanted besides", () => {
		const wishes = { instruction: " shorter ", mayRemove: "C.m", candidates: "3", tests: "python3 -m unittest" };
		expect(bodyOf({ file: "a.py", ...wishes }).body).toEqual({
			file: "a.py",
			instruction: "shorter",
			may_remove: ["C.m"],
			candidates: 3,
			tests: ["python3", "-m", "unittest"],
		});
	});
	test.each([
		["f", ["f"]],
		["f, C.m", ["f", "C.m"]],
		[" f  Type::new\n\tg,", ["f", "Type::new", "g"]],
		["f f,f", ["f"]],
		["größe", ["größe"]],
	])("%j are names that may go", (mayRemove, names) => {
		expect(bodyOf({ file: "a.py", ...NO_WISHES, mayRemove }).body?.may_remove).toEqual(names);
	});
	test("is not made of tests with an open quotation mark", () => {
		const made = bodyOf({ file: "a.py", ...NO_WISHES, tests: "pytest -k 'a b" });
		expect(made.body).toBeNull();
		expect(made.problem).toContain("pytest -k 'a b");
	});
});

describe("a line with a program and its arguments", () => {
	test.each([
		["", []],
		["  cargo   test ", ["cargo", "test"]],
		[`pytest -k "a and b"`, ["pytest", "-k", "a and b"]],
		[`pytest '-k=it''s' ""`, ["pytest", "-k=its", ""]],
		[`say "it's" 'a "b"'`, ["say", "it's", 'a "b"']],
		["python3 -c $HOME\\n;*", ["python3", "-c", "$HOME\\n;*"]],
		["make 'größe ü'", ["make", "größe ü"]],
	])("%j is these words", (line, expected) => {
		expect(words(line)).toEqual(expected);
	});
	test.each(["'", 'a "b', "a b'c", `a "b" 'c`, `"a'`])("%j is none", (line) => {
		expect(words(line)).toBeNull();
	});
});
