import { gzipSync } from "node:zlib";
import { expect, test } from "vitest";
import { bytesOf, scriptsOf } from "../../scripts/first-load.mjs";

const page = `<script src="/a.js" async=""></script><script src="/old.js" noModule=""></script><script>inline</script>
	<script defer src="/b.js?v=1"></script><script src="/a.js"></script><link href="/c.css">`;

test("the first load of a page is each script that a browser of today fetches, once and compressed", () => {
	expect(scriptsOf(page)).toEqual(["/a.js", "/b.js"]);
	const files: Record<string, Buffer> = { "/a.js": Buffer.from("a".repeat(10_000)), "/b.js": Buffer.from("b") };
	const sizes = Object.values(files).map((file) => gzipSync(file).length);
	expect(bytesOf(page, (path) => files[path] ?? Buffer.alloc(0))).toBe(sizes.reduce((a, b) => a + b));
});
