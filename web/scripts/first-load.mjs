// What a browser must fetch of scripts before a page works, compressed. More than the limit fails the build.
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { gzipSync } from "node:zlib";

const OUT = "out";
/** Bytes of all scripts of one page as gzip. */
export const LIMIT = 300_000;

/** The scripts that a page names, each once; those for browsers without modules are fetched by none that is supported. */
export function scriptsOf(html) {
	const tags = html.match(/<script\b[^>]*>/g) ?? [];
	const wanted = tags.filter((tag) => !/\bnomodule\b/i.test(tag));
	return [...new Set(wanted.flatMap((tag) => /\bsrc="([^"?]+)/.exec(tag)?.[1] ?? []))];
}

/** Compressed bytes of the scripts of a page; `read` gives a file by its path. */
export function bytesOf(html, read) {
	return scriptsOf(html).reduce((sum, path) => sum + gzipSync(read(path)).length, 0);
}

function main() {
	const pages = readdirSync(OUT, { recursive: true }).map(String);
	const sizes = pages
		.filter((name) => name.endsWith(".html"))
		.map((name) => ({
			name,
			bytes: bytesOf(readFileSync(join(OUT, name), "utf8"), (path) => readFileSync(join(OUT, path))),
		}))
		.sort((a, b) => b.bytes - a.bytes);
	for (const { name, bytes } of sizes) console.log(`${(bytes / 1000).toFixed(0).padStart(5)} KB of scripts: ${name}`);
	const heavy = sizes.filter((page) => page.bytes > LIMIT);
	if (sizes.length === 0 || heavy.length > 0) {
		const what = heavy.map((page) => page.name).join(", ") || "no page was exported";
		console.error(`the first load is at most ${LIMIT / 1000} KB of scripts, compressed; too heavy: ${what}`);
		process.exitCode = 1;
	}
}

if (process.argv[1] && import.meta.url === pathToFileURL(process.argv[1]).href) main();
