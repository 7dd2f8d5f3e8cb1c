// Writes the Content-Security-Policy of the exported pages: scripts of our own, and the inline ones that the export
// carries by their hashes. The server sends it with every page.
import { createHash } from "node:crypto";
import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";

const OUT = "out";
const hashes = new Set();
for (const name of readdirSync(OUT, { recursive: true })) {
	if (!String(name).endsWith(".html")) continue;
	const html = readFileSync(join(OUT, String(name)), "utf8");
	for (const [, attributes, body] of html.matchAll(/<script([^>]*)>([\s\S]*?)<\/script>/g)) {
		if (/\bsrc=/.test(attributes) || body === "") continue;
		hashes.add(`'sha256-${createHash("sha256").update(body).digest("base64")}'`);
	}
}
const policy = [
	"default-src 'none'",
	`script-src 'self' ${[...hashes].sort().join(" ")}`,
	// React Flow and React place elements by style attributes.
	"style-src 'self' 'unsafe-inline'",
	"img-src 'self' data:",
	"font-src 'self'",
	"connect-src 'self' ws: wss:",
	"base-uri 'none'",
	"form-action 'none'",
	"frame-ancestors 'none'",
].join("; ");
writeFileSync(join(OUT, "content-security-policy.txt"), `${policy}\n`);
console.log(`${hashes.size} inline scripts named in content-security-policy.txt`);
