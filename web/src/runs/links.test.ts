import { describe, expect, test } from "vitest";
import { textParts, whereTo } from "./links";

const addresses = (text: string) => textParts(text).flatMap((part) => ("address" in part ? [part.address] : []));

describe("addresses in an answer", () => {
	test.each([
		["See https://a.example/b?c=d#e.", ["https://a.example/b?c=d#e"]],
		["(https://a.example/), [b](http://b.example/x)", ["https://a.example/", "http://b.example/x"]],
		['<a href="https://a.example/">', ["https://a.example/"]],
		["**https://a.example/b**", ["https://a.example/b"]],
	])("given %j, they are %j", (text, found) => expect(addresses(text)).toEqual(found));

	test.each([
		"[click](javascript:window.hacked=1)",
		"data:text/html,<script>1</script>",
		"https://bank.example@elsewhere.example/",
		"https://bank.example:443@elsewhere.example/",
		"https://",
		"file:///etc/passwd",
		"no address",
		"",
	])("given %j, there is none", (text) => expect(addresses(text)).toEqual([]));

	test("given any text, the pieces together are the text", () => {
		for (const text of [
			"https://a.example/ and https://b.example/.",
			"https://x@y/ https://z.example",
			"a\n https://b.example/,",
		]) {
			const whole = textParts(text).map((part) => ("address" in part ? part.address : part.text));
			expect(whole.join("")).toBe(text);
		}
	});

	test("given letters that look like others, the host that is shown is another one", () => {
		expect(whereTo("https://\u0430pple.example/")?.host).toBe("xn--pple-43d.example");
	});
});
