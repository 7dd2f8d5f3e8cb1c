/** A part of a text with a marked place. Spans count bytes of UTF-8, as everywhere in the API. Pure. */

export type Span = { start: number; end: number };
export type Marked = { before: string; marked: string; after: string };

// A byte order mark is a part of the text like any other.
const utf8 = { encoder: new TextEncoder(), decoder: new TextDecoder("utf-8", { ignoreBOM: true }) };

/** Cuts `text`, which begins at byte `start` of its document, at the span; what lies outside of the text marks nothing. */
export function mark(text: string, start: number, span: Span | null): Marked {
	const bytes = utf8.encoder.encode(text);
	const at = (offset: number) => Math.min(Math.max(offset - start, 0), bytes.length);
	const [from, to] = span ? [at(span.start), Math.max(at(span.start), at(span.end))] : [bytes.length, bytes.length];
	const part = (a: number, b: number) => utf8.decoder.decode(bytes.subarray(a, b));
	return { before: part(0, from), marked: part(from, to), after: part(to, bytes.length) };
}

/** Whether the words at a place are the ones that were cited, whatever lies between the words. */
export function sameWords(a: string, b: string): boolean {
	const words = (text: string) => text.split(/\s+/).filter(Boolean).join(" ");
	return words(a) === words(b);
}

/** The part of a document around a place, in bytes. */
export function around(span: Span | null, size: number): Span {
	const start = Math.max(0, (span?.start ?? 0) - size / 2);
	return { start, end: Math.max(start + size, (span?.end ?? 0) + size / 2) };
}
