"use client";

import Link from "next/link";
import { useMemo, useState } from "react";
import type { CitationView } from "@/api/client";
import { addressOf } from "@/documents/DocumentPage";
import { DocumentReader } from "@/documents/DocumentReader";
import { Dialog } from "@/ui";
import { Written } from "./Written";

type Props = {
	text: string;
	citations: CitationView[];
	/** Where the documents are. */
	namespace: string;
};

/** An answer with its form, numbers that open their source, and addresses that ask before they are opened. */
export function Answer({ text, citations, namespace }: Props) {
	const [open, setOpen] = useState<CitationView | null>(null);
	return (
		<>
			<Written text={text} citations={citations} onOpen={setOpen} />
			<Dialog wide open={open !== null} onClose={() => setOpen(null)} title={open ? `Source ${open.n}` : ""}>
				{open && <Source citation={open} namespace={namespace} />}
			</Dialog>
		</>
	);
}

function Source({ citation, namespace }: { citation: CitationView; namespace: string }) {
	const { document_id: id, span, quote } = citation;
	const wanted = useMemo(() => ({ id, namespace, span, quote }), [id, namespace, span, quote]);
	return (
		<div className="space-y-3">
			<blockquote className="whitespace-pre-wrap border-accent border-l-2 pl-3">{quote}</blockquote>
			<p className="text-soft text-xs">
				{citation.page ? `Page ${citation.page}. ` : ""}
				{citation.supported ? "The quote supports the sentence." : "The quote does not support the sentence."}{" "}
				<Link href={addressOf(wanted)} prefetch={false} className="text-accent underline">
					Open on a page of its own
				</Link>
			</p>
			<DocumentReader wanted={wanted} />
		</div>
	);
}
