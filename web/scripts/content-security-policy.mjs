// Moves the inline scripts of the exported pages into files of their own and writes the Content-Security-Policy that the
// server sends with every page: no script but those files.
import { createHash } from "node:crypto";
import { mkdirSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { pathToFileURL } from "node:url";

const OUT = "out";
/** Names below it change with their content: the server lets browsers keep them. */
const FOLDER = "_next/static/inline";

/** What a page may load, and from where: from its own server alone, and from the API's where that is another one. */
export function policyFor(apiBase) {
	const api = apiBase.replace(/\/+$/, "");
	return [
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
}

/** The page with its inline scripts in files; `keep` is given the text of each, and says where it is. */
export function withoutInline(html, keep) {
	return html.replace(/<script([^>]*)>([\s\S]*?)<\/script>/g, (whole, attributes, body) => {
		if (/\bsrc=/.test(attributes) || body === "") return whole;
		// Neither async nor deferred: they run in the order and at the place where they stood.
		return `<script${attributes} src="${keep(body)}"></script>`;
	});
}

function main() {
	mkdirSync(join(OUT, FOLDER), { recursive: true });
	const written = new Set();
	const keep = (body) => {
		const hash = createHash("sha256").update(body).digest("hex").slice(0, 20);
		writeFileSync(join(OUT, FOLDER, `${hash}.js`), body);
		written.add(hash);
		return `/${FOLDER}/${hash}.js`;
	};
	for (const name of readdirSync(OUT, { recursive: true }).map(String)) {
		if (!name.endsWith(".html")) continue;
		const path = join(OUT, name);
		writeFileSync(path, withoutInline(readFileSync(path, "utf8"), keep));
	}
	const policy = policyFor(process.env.NEXT_PUBLIC_API_BASE ?? "");
	writeFileSync(join(OUT, "content-security-policy.txt"), `${policy}\n`);
	console.log(`${written.size} inline scripts moved into files; the policy is in content-security-policy.txt`);
}

if (process.argv[1] && import.meta.url === pathToFileURL(process.argv[1]).href) main();
