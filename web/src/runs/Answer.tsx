"use client";

import { useState } from "react";
import type { CitationView } from "@/api/client";
import { Dialog } from "@/ui";
import { answerParts } from "./fold";

/** An answer as words and numbers that open their source. Model output is text here, never markup. */
export function Answer({ text, citations }: { text: string; citations: CitationView[] }) {
	const [open, setOpen] = useState<CitationView | null>(null);
	return (
		<div className="whitespace-pre-wrap break-words">
			{answerParts(text, citations).map((part, at) =>
				"text" in part ? (
					// biome-ignore lint/suspicious/noArrayIndexKey: the parts of a text have no other name
					<span key={at}>{part.text}</span>
				) : (
					<button
						// biome-ignore lint/suspicious/noArrayIndexKey: the parts of a text have no other name
						key={at}
						type="button"
						className="nodrag mx-0.5 rounded bg-raised px-1 font-medium text-accent"
						aria-label={`source ${part.citation.n}: ${part.citation.source}`}
						onClick={() => setOpen(part.citation)}
					>
						[{part.citation.n}]
						{!part.citation.supported && <span title="the quote does not support the sentence">?</span>}
					</button>
				),
			)}
			<Dialog open={open !== null} onClose={() => setOpen(null)} title={open ? `Source ${open.n}` : ""}>
				{open && <Source citation={open} />}
			</Dialog>
		</div>
	);
}

function Source({ citation }: { citation: CitationView }) {
	return (
		<div className="space-y-3">
			<p className="break-all font-mono text-xs">{citation.source}</p>
			<blockquote className="whitespace-pre-wrap border-accent border-l-2 pl-3">{citation.quote}</blockquote>
			<p className="text-soft text-xs">
				bytes {citation.span.start}–{citation.span.end}
				{citation.page ? `, page ${citation.page}` : ""} of document {citation.document_id}.{" "}
				{citation.supported ? "The quote supports the sentence." : "The quote does not support the sentence."}
			</p>
		</div>
	);
}
