"use client";

import { useEffect, useRef, useState } from "react";
import { describe } from "@/api/client";
import type { DocumentText } from "@/api/shapes";
import { Alert, Button } from "@/ui";
import { bytes } from "@/ui/words";
import { readText, versionOf, type Wanted } from "./read";
import { around, mark, type Span } from "./text";

/** Bytes that are shown at once. */
const WINDOW = 16 << 10;

/** A document's stored text, opened at the place that was cited. */
export function DocumentReader({ wanted, version }: { wanted: Wanted; version?: string }) {
	const { id, namespace, span, quote } = wanted;
	/** Undefined while it is not known, null when no version has the quote at its place. */
	const [found, setFound] = useState<string | null | undefined>(version);
	const [part, setPart] = useState<Span>(() => around(span, WINDOW));
	const [read, setRead] = useState<DocumentText | null>(null);
	const [problem, setProblem] = useState<string | null>(null);
	const marked = useRef<HTMLElement>(null);

	useEffect(() => {
		if (version) return;
		const abort = new AbortController();
		versionOf({ id, namespace, span, quote }, abort.signal)
			.then(setFound)
			.catch((error) => !abort.signal.aborted && setProblem(describe(error)));
		return () => abort.abort();
	}, [id, namespace, span, quote, version]);

	useEffect(() => {
		if (found === undefined) return;
		const abort = new AbortController();
		readText({ id, namespace, span, quote }, part, found, abort.signal)
			.then((text) => {
				setRead(text);
				setProblem(null);
			})
			.catch((error) => !abort.signal.aborted && setProblem(describe(error)));
		return () => abort.abort();
	}, [id, namespace, span, quote, found, part]);

	useEffect(() => {
		if (read) marked.current?.scrollIntoView({ block: "center" });
	}, [read]);

	if (!read) return problem ? <Alert>{problem}</Alert> : <p className="text-soft">Reading…</p>;
	const pieces = mark(read.text, read.span.start, found === null ? null : span);
	const move = (by: number) =>
		setPart({ start: Math.max(0, read.span.start + by), end: read.span.start + by + WINDOW });
	return (
		<article aria-label={read.source} className="space-y-2">
			<p className="break-all font-mono text-xs">
				{read.title ? `${read.title} · ` : ""}
				{read.source}
			</p>
			<p className="text-soft text-xs">
				bytes {read.span.start}–{read.span.end} of {bytes(read.size_bytes)}, version {read.version.slice(0, 12)}
			</p>
			{found === null && (
				<p className="text-warn text-xs">The document has changed since: the quote is no longer at its place.</p>
			)}
			<Alert>{problem}</Alert>
			{/* biome-ignore lint/a11y/noNoninteractiveTabindex: what scrolls must be reached by keyboard */}
			<div className="max-h-[55vh] overflow-auto rounded border border-line bg-ground p-3" tabIndex={0}>
				<p className="whitespace-pre-wrap break-words">
					{pieces.before}
					{pieces.marked && (
						<mark ref={marked} className="rounded bg-accent px-0.5 text-accent-ink">
							{pieces.marked}
						</mark>
					)}
					{pieces.after}
				</p>
			</div>
			<div className="flex gap-2">
				<Button disabled={read.span.start === 0} onClick={() => move(-WINDOW)}>
					Earlier
				</Button>
				{span && <Button onClick={() => setPart(around(span, WINDOW))}>The cited place</Button>}
				<Button disabled={read.span.end >= read.size_bytes} onClick={() => move(read.span.end - read.span.start)}>
					Later
				</Button>
			</div>
		</article>
	);
}
