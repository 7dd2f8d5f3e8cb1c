// Puts beside each exported file that is text its gzip, which the server sends to whoever takes it. As strong as it goes: it is done
// once, here, and not for each request.
import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { gzipSync } from "node:zlib";

const OUT = "out";
const TEXTS = /\.(?:js|css|html|json|svg|txt)$/;
/** Written for the server, which sends it to nobody. */
const POLICY = "content-security-policy.txt";
/** Below this a header more costs what is saved. */
const LEAST = 1_024;

/** The file as it is sent; null where it is as good as it is. */
export function compressed(name, content) {
	if (!TEXTS.test(name) || name === POLICY || content.length < LEAST) return null;
	const packed = gzipSync(content, { level: 9 });
	return packed.length < content.length ? packed : null;
}

function main() {
	let [before, after] = [0, 0];
	for (const name of readdirSync(OUT, { recursive: true }).map(String)) {
		if (!TEXTS.test(name)) continue;
		const content = readFileSync(join(OUT, name));
		const packed = compressed(name, content);
		if (!packed) continue;
		writeFileSync(join(OUT, `${name}.gz`), packed);
		before += content.length;
		after += packed.length;
	}
	console.log(`${(before / 1024).toFixed(0)} KiB of text as ${(after / 1024).toFixed(0)} KiB of gzip`);
}

if (process.argv[1] && import.meta.url === pathToFileURL(process.argv[1]).href) main();
