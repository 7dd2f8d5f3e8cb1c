/** Addresses in what a model wrote. Pure. */

export type TextPart = { text: string } | { address: string };

const ADDRESS = /https?:\/\/[^\s<>"'`()[\]{}|\\^]{1,2000}/g;
/** What ends a sentence is no part of an address. */
const ENDS = /[.,;:!?*_]+$/;

/** A text in pieces: words, and addresses that a browser could open. All of it together is the text. */
export function textParts(text: string): TextPart[] {
	const parts: TextPart[] = [];
	let from = 0;
	for (const match of text.matchAll(ADDRESS)) {
		const address = match[0].replace(ENDS, "");
		if (!whereTo(address)) continue;
		if (match.index > from) parts.push({ text: text.slice(from, match.index) });
		parts.push({ address });
		from = match.index + address.length;
	}
	if (from < text.length) parts.push({ text: text.slice(from) });
	return parts;
}

/**
 * Where an address leads, as the browser would go there: letters that only look like others are written out in its host. Null where it
 * leads nowhere, and where it carries a name or password, which are there to be taken for the host.
 */
export function whereTo(address: string): URL | null {
	if (!URL.canParse(address)) return null;
	const url = new URL(address);
	const isPlain = url.username === "" && url.password === "" && url.hostname !== "";
	return isPlain && (url.protocol === "https:" || url.protocol === "http:") ? url : null;
}
