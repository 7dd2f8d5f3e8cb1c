import { gunzipSync } from "node:zlib";
import { expect, test } from "vitest";
import { compressed } from "../../scripts/compress.mjs";

test("given a text that is worth it, then its gzip is the same text", () => {
	const text = Buffer.from("export const a = 1;\n".repeat(200));
	const packed = compressed("_next/static/a.js", text);
	expect(packed && packed.length < text.length / 4 && gunzipSync(packed).equals(text)).toBe(true);
});

test.each([
	["a short text", "a.js", "a".repeat(100)],
	["a picture", "a.png", "a".repeat(5_000)],
	["the policy, which nobody is sent", "content-security-policy.txt", "a".repeat(5_000)],
])("given %s, then it stays as it is", (_, name, text) => {
	expect(compressed(name, Buffer.from(text))).toBeNull();
});
