// Moves the inline scripts of the exported pages into files of their own and writes the Content-Security-Policy that the
// server sends with every page: no script but those files.
import { createHash } from "node:crypto";
import { mkdirSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";

const OUT = "out";
/** Names below it change with their content: the server lets browsers keep them. */
const FOLDER = "_next/static/inline";
mkdirSync(join(OUT, FOLDER), { recursive: true });

const written = new Set();
for (const name of readdirSync(OUT, { recursive: true })) {
	if (!String(name).endsWith(".html")) continue;
	const path = join(OUT, String(name));
	const html = readFileSync(path, "utf8");
	const moved = html.replace(/<script([^>]*)>([\s\S]*?)<\/script>/g, (whole, attributes, body) => {
		if (/\bsrc=/.test(attributes) || body === "") return whole;
		const hash = createHash("sha256").update(body).digest("hex").slice(0, 20);
		writeFileSync(join(OUT, FOLDER, `${hash}.js`), body);
		written.add(hash);
		// Neither async nor deferred: they run in the order and at the place where they stood.
		return `<script${attributes} src="/${FOLDER}/${hash}.js"></script>`;
	});
	writeFileSync(path, moved);
}

const api = (process.env.NEXT_PUBLIC_API_BASE ?? "").replace(/\/+$/, "");
const policy = [
	"default-src 'none'",
	"script-src 'self'",
	// Dialogs and React Flow place elements by styles that they write.
	"style-src 'self' 'unsafe-inline'",
	"img-src 'self' data:",
	"font-src 'self'",
	`connect-src 'self'${api && ` ${api} ${api.replace(/^http/, "ws")}`}`,
	"base-uri 'none'",
	"form-action 'none'",
	"frame-ancestors 'none'",
].join("; ");
writeFileSync(join(OUT, "content-security-policy.txt"), `${policy}\n`);
console.log(`${written.size} inline scripts moved into files; the policy is in content-security-policy.txt`);
