import { describe, expect, test } from "vitest";
import { MOST_CHARACTERS, MOST_LEVELS, MOST_PIECES, type Piece, piecesOf, wordsOf } from "./markdown";

const text = (words: string): Piece => ({ kind: "text", text: words });
const paragraph = (...children: Piece[]): Piece => ({ kind: "paragraph", children });
const tight = (words: string): Piece => ({ kind: "tight", children: [text(words)] });

function all(pieces: Piece[] | null): Piece[] {
	return (pieces ?? []).flatMap((piece) => [piece, ...("children" in piece ? all(piece.children) : [])]);
}
const kinds = (words: string) => all(piecesOf(words)).map((piece) => piece.kind);
const depth = (pieces: Piece[]): number =>
	Math.max(0, ...pieces.map((piece) => 1 + ("children" in piece ? depth(piece.children) : 0)));

describe("what Markdown gives a form to", () => {
	test.each<[string, Piece[]]>([
		["One.\n\nTwo.", [paragraph(text("One.")), paragraph(text("Two."))]],
		["One\ntwo", [paragraph(text("One"), { kind: "break" }, text("two"))]],
		["## Title", [{ kind: "heading", children: [text("Title")] }]],
		["*a*", [paragraph({ kind: "emphasis", children: [text("a")] })]],
		["**a**", [paragraph({ kind: "strong", children: [text("a")] })]],
		["~~a~~", [paragraph({ kind: "deleted", children: [text("a")] })]],
		["`a < b`", [paragraph({ kind: "code", text: "a < b" })]],
		["```rust\nlet a = 1;\n```", [{ kind: "block", text: "let a = 1;" }]],
		["    let a = 1;", [{ kind: "block", text: "let a = 1;" }]],
		["- a", [{ kind: "bullets", children: [{ kind: "item", children: [tight("a")] }] }]],
		["3. a", [{ kind: "numbers", start: 3, children: [{ kind: "item", children: [tight("a")] }] }]],
		["> a", [{ kind: "quote", children: [paragraph(text("a"))] }]],
		["***", [{ kind: "rule" }]],
		["[a](https://a.example/)", [paragraph({ kind: "link", address: "https://a.example/", children: [text("a")] })]],
		[
			"<https://a.example/>",
			[paragraph({ kind: "link", address: "https://a.example/", children: [text("https://a.example/")] })],
		],
		["![a](https://a.example/x.png)", [paragraph({ kind: "image", address: "https://a.example/x.png", text: "a" })]],
		["\\*a\\* &lt;b&gt;", [paragraph(text("*a* <b>"))]],
	])("given %j, it is read as it is meant", (words, pieces) => expect(piecesOf(words)).toEqual(pieces));

	test("given a table, its cells keep their side", () => {
		expect(piecesOf("| a | b | c |\n|---|:-:|--:|\n| 1 | 2 | 3 |")).toEqual([
			{
				kind: "table",
				children: [
					{
						kind: "head",
						children: [
							{
								kind: "row",
								children: [
									{ kind: "header", side: "left", children: [text("a")] },
									{ kind: "header", side: "center", children: [text("b")] },
									{ kind: "header", side: "right", children: [text("c")] },
								],
							},
						],
					},
					{
						kind: "body",
						children: [
							{
								kind: "row",
								children: [
									{ kind: "cell", side: "left", children: [text("1")] },
									{ kind: "cell", side: "center", children: [text("2")] },
									{ kind: "cell", side: "right", children: [text("3")] },
								],
							},
						],
					},
				],
			},
		]);
	});
});

describe("numbers of sources", () => {
	test.each([
		"Twelve [1].",
		"**Twelve [1]**",
		"- *Twelve* [1]",
		"| a |\n|---|\n| Twelve [1] |",
		"| a | b |\n|---|---|\n| a winch | twelve | [1]",
		"| a | b | [1]\n|---|---|\n| a winch | twelve |",
		"> Twelve [1]",
		"## Twelve [1]",
		"Twelve [1](https://a.example/)",
		"Twelve [1][2]",
		"Twelve [1]\n\n[1]: https://a.example/",
		"[of [1]](https://a.example/)",
	])("given %j, the number is one", (words) => {
		expect(all(piecesOf(words))).toContainEqual({ kind: "citation", n: 1, text: "[1]" });
		expect(kinds(words)).not.toContain("link");
	});

	test("given some behind rows of a table, it is a table, and they are in the last cell", () => {
		const pieces = all(piecesOf("| a | b | [1]\n|---|---|\n| c | d | [1] [2]"));
		const cells = pieces.filter((piece) => piece.kind === "header" || piece.kind === "cell");
		expect(cells.map((cell) => wordsOf([cell]))).toEqual(["a", "b [1]", "c", "d [1] [2]"]);
	});

	test.each(["`a[1]`", "```\na[1]\n```", "[1234]", "[x]", "\\[1]"])("given %j, there is none", (words) => {
		expect(kinds(words)).not.toContain("citation");
	});
});

describe("what a hostile model writes", () => {
	test.each([
		"<script>window.hacked=1</script>",
		'<img src=x onerror="window.hacked=1">',
		"<div>\n\n<b>bold</b>\n\n</div>",
		"[click](javascript:window.hacked=1)",
		"[click](JaVaScRiPt:window.hacked=1)",
		"![seen](data:image/svg+xml,<svg/>)",
		"[click](//elsewhere.example/)",
		"[click](/runs)",
		"<javascript:window.hacked=1>",
		"[bank](https://bank.example@elsewhere.example/)",
		"__proto__",
		"[a]: https://a.example/\n[a]",
	])("given %j, it is words and nothing else", (words) => {
		const mere = new Set(["text", "paragraph", "break", "strong"]);
		expect(kinds(words).filter((kind) => !mere.has(kind))).toEqual([]);
	});

	test.each(["<script>window.hacked=1</script>", "[click](javascript:window.hacked=1)", "<b>a</b>"])(
		"given %j, every character of it is shown",
		(words) => expect(wordsOf(piecesOf(words) ?? [])).toBe(words),
	);

	test("given names of what every object has, they are words", () => {
		const words = "```__proto__\nconstructor\n```\n\n| __proto__ |\n|---|\n| toString |";
		expect(wordsOf(piecesOf(words) ?? [])).toBe("constructorprototoString");
		expect(Object.keys(Object.prototype)).toEqual([]);
	});

	test("given more than is read, it is shown as it stands", () => {
		expect(piecesOf("*".repeat(1_000_000))).toBeNull();
		expect(piecesOf("a".repeat(MOST_CHARACTERS + 1))).toBeNull();
		expect(piecesOf("a".repeat(MOST_CHARACTERS))).toHaveLength(1);
	});

	test.each([
		["quotes", `${">".repeat(1_000)} a`],
		["lists", Array.from({ length: 100 }, (_, level) => `${"  ".repeat(level)}- a`).join("\n")],
		["emphasis", `${"*a ".repeat(100)}${"b* ".repeat(100)}`],
		["items in one line", `${"- ".repeat(1_000)}a`],
		["more pieces than are drawn", "a\n\n".repeat(MOST_PIECES)],
		["cells", `|${"a|".repeat(100)}\n|${"-|".repeat(100)}\n${"|\n".repeat(10_000)}`],
	])("given too much of %s, it is shown as it stands", (_, words) => expect(piecesOf(words)).toBeNull());

	test.each([
		"*",
		"**a *b ",
		"[",
		"![",
		"![[](",
		"[a](",
		"`",
		"~~a ",
		"<",
		"\\",
		"&#",
		"|",
		"|-|\n",
		"_a__",
		"| ",
		"|[1]",
		"|a ",
		"> ",
		"[1]",
		"```\n",
	])("given nothing but %j, few pieces come of it, or none", (words) => {
		const pieces = piecesOf(words.repeat(MOST_CHARACTERS).slice(0, MOST_CHARACTERS));
		expect(all(pieces).length).toBeLessThanOrEqual(MOST_PIECES);
		expect(depth(pieces ?? [])).toBeLessThanOrEqual(MOST_LEVELS + 1);
	});
});

describe("what is being written", () => {
	const ANSWER =
		"# Fees\n\nA **winch launch** costs *12 euros* [1], see [the page](https://a.example/b).\n---\n" +
		"- one\n  - `two`\n3. three\n\n| a | b |\n|---|--:|\n| 1 | ~~2~~ |\n\n> ![c](https://a.example/c.png)\n\n```js\nlet a;\n```\n";

	test("given any beginning of an answer, it is read, and its words are in it", () => {
		for (let end = 0; end <= ANSWER.length; end++) {
			const pieces = piecesOf(ANSWER.slice(0, end));
			expect(pieces).not.toBeNull();
			if (end > 40) expect(wordsOf(pieces ?? [])).toContain("winch launch");
		}
	});

	test("given a code block without an end, what follows is code", () => {
		expect(piecesOf("```\n# a\n**b")).toEqual([{ kind: "block", text: "# a\n**b" }]);
	});

	test("given the beginning of a list below a paragraph, the paragraph is no heading", () => {
		expect(kinds("A winch\n-")).not.toContain("heading");
		expect(kinds("A winch\n---")).toEqual(["paragraph", "text", "rule"]);
	});
});
