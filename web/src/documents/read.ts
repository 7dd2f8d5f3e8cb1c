/** Reads documents. */

import { call } from "@/api/client";
import type { DocumentDetail, DocumentText } from "@/api/shapes";
import { mark, type Span, sameWords } from "./text";

/** Versions that are looked through for a quote: the newest. */
const VERSIONS = 5;

export type Wanted = { id: string; namespace: string; span: Span | null; quote?: string };

export function readText(wanted: Wanted, part: Span, version: string | null, signal: AbortSignal) {
	const query = new URLSearchParams({
		namespace: wanted.namespace,
		start: String(Math.floor(part.start)),
		end: String(Math.ceil(part.end)),
		...(version ? { version } : {}),
	});
	return call<DocumentText>(`/documents/${encodeURIComponent(wanted.id)}/text?${query}`, { signal });
}

export function readDocument(id: string, namespace: string, signal: AbortSignal): Promise<DocumentDetail> {
	const query = new URLSearchParams({ namespace });
	return call<DocumentDetail>(`/documents/${encodeURIComponent(id)}?${query}`, { signal });
}

/** The version in which the quote stands at the span: a document may have changed since it was cited. Null for none. */
export async function versionOf(wanted: Wanted, signal: AbortSignal): Promise<string | null> {
	const { span, quote } = wanted;
	const fits = async (version: string | null) => {
		if (!span || !quote) return true;
		const read = await readText(wanted, span, version, signal);
		return sameWords(mark(read.text, read.span.start, span).marked, quote);
	};
	const document = await readDocument(wanted.id, wanted.namespace, signal);
	const newestFirst = document.versions.map((one) => one.version).reverse();
	const found = document.indexed_version;
	const order = [...(found ? [found] : []), ...newestFirst.filter((one) => one !== found)];
	for (const version of order.slice(0, VERSIONS)) if (await fits(version)) return version;
	return null;
}
