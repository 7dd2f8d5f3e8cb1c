import { createElement } from "react";
import { renderToStaticMarkup } from "react-dom/server";
import { describe, expect, test } from "vitest";
import FormattedText from "./FormattedText";
import { PlainText } from "./PlainText";

const citation = {
	n: 1,
	chunk_id: "c",
	document_id: "d",
	source: "fees.md",
	quote: "q",
	span: { start: 0, end: 1 },
	supported: true,
};
const html = (text: string) => renderToStaticMarkup(createElement(FormattedText, { text, citations: [citation] }));
const tagsOf = (markup: string) => [...new Set([...markup.matchAll(/<([a-z0-9]+)/g)].map((match) => match[1]))].sort();
/** What somebody reads. */
const wordsOf = (markup: string) =>
	markup
		.replace(/<[^>]*>/g, "")
		.replaceAll("&lt;", "<")
		.replaceAll("&gt;", ">")
		.replaceAll("&quot;", '"')
		.replaceAll("&#x27;", "'")
		.replaceAll("&amp;", "&");

describe("an answer as it is drawn", () => {
	test.each([
		["One.\n\nTwo\nthree.", ["br", "div", "p", "span"]],
		["# a\n\n###### b", ["div", "span"]],
		["*a* **b** ~~c~~ `d`", ["code", "del", "div", "em", "p", "span", "strong"]],
		["```\na\n```", ["code", "div", "pre"]],
		["- a\n\n2. b", ["div", "li", "ol", "span", "ul"]],
		["> a\n\n---", ["blockquote", "div", "hr", "p", "span"]],
		["| a | |\n|---|---|\n| b | c |", ["div", "span", "table", "tbody", "td", "th", "thead", "tr"]],
	])("given %j, it is made of %j", (text, tags) => expect(tagsOf(html(text))).toEqual(tags));

	test("given a list that begins at three, it counts from there", () => {
		expect(html("3. a")).toContain('start="3"');
	});

	test.each(["**12 euros [1]**", "- *12 euros* [1]", "| fee |\n|---|\n| 12 euros [1] |"])(
		"given %j, the number opens its source",
		(text) => expect(html(text)).toMatch(/<button[^>]*aria-label="source 1: fees.md"[^>]*>\[1\]/),
	);

	test("given a number without a source, it is words", () => {
		expect(wordsOf(html("12 euros [7](https://a.example/)"))).toBe("12 euros [7](https://a.example/)");
		expect(html("12 euros [7]")).not.toContain("<button");
	});

	test("given a link, its words say where it leads, and it is none yet", () => {
		const drawn = html("[my bank](https://elsewhere.example/a_(b))");
		expect(tagsOf(drawn)).toEqual(["button", "div", "p", "span"]);
		expect(wordsOf(drawn)).toBe("my bank (https://elsewhere.example/a_(b))");
		expect(drawn).toMatch(/<button[^>]*>https:\/\/elsewhere\.example\/a_\(b\)<\/button>/);
	});

	test("given an address by itself, it is shown once", () => {
		expect(wordsOf(html("<https://a.example/>"))).toBe("https://a.example/");
		expect(wordsOf(html("[https://a.example/](https://a.example/)"))).toBe("https://a.example/");
	});

	test("given an image, it is its words and its address", () => {
		const drawn = html("![a cat](https://elsewhere.example/seen.png)");
		expect(tagsOf(drawn)).toEqual(["button", "div", "p", "span"]);
		expect(wordsOf(drawn)).toBe("a cat (image: https://elsewhere.example/seen.png)");
	});

	test.each([
		'<img src=x onerror="window.hacked=1">',
		"<script>window.hacked=1</script>",
		"<style>*{display:none}</style>",
		"<iframe srcdoc='<script>1</script>'></iframe>",
		"[click](javascript:window.hacked=1)",
		"![seen](javascript:window.hacked=1)",
		"[click](https://bank.example@elsewhere.example/)",
	])("given %j, it is words", (text) => {
		expect(tagsOf(html(text))).toEqual(["div", "p", "span"]);
		expect(wordsOf(html(text))).toBe(text);
	});

	test("given more than is read, it is drawn as it stands", () => {
		const text = `**${"a".repeat(70_000)}** [1]`;
		expect(html(text)).toBe(renderToStaticMarkup(createElement(PlainText, { text, citations: [citation] })));
		expect(wordsOf(html(text))).toBe(text);
	});
});
