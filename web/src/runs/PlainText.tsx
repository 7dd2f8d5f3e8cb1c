"use client";

import clsx from "clsx";
import type { CitationView } from "@/api/client";
import { answerParts } from "./fold";
import { ModelText } from "./ModelText";

export type WrittenProps = {
	text: string;
	/** What the numbers in brackets stand for; a number without a source stays words. */
	citations?: CitationView[];
	onOpen?: (citation: CitationView) => void;
	className?: string;
};

const NONE: CitationView[] = [];

/** What a model wrote, as it stands: words, numbers that open their source, and addresses that ask before they are opened. */
export function PlainText({ text, citations = NONE, onOpen, className }: WrittenProps) {
	return (
		<div className={clsx("whitespace-pre-wrap break-words", className)}>
			{answerParts(text, citations).map((part, at) =>
				"text" in part ? (
					// biome-ignore lint/suspicious/noArrayIndexKey: the parts of a text have no other name
					<ModelText key={at} text={part.text} />
				) : (
					// biome-ignore lint/suspicious/noArrayIndexKey: the parts of a text have no other name
					<CitationButton key={at} citation={part.citation} onOpen={onOpen} />
				),
			)}
		</div>
	);
}

export function CitationButton({ citation, onOpen }: { citation: CitationView } & Pick<WrittenProps, "onOpen">) {
	return (
		<button
			type="button"
			className="nodrag mx-0.5 rounded bg-raised px-1 font-medium text-accent"
			aria-label={`source ${citation.n}: ${citation.source}`}
			onClick={() => onOpen?.(citation)}
		>
			[{citation.n}]{!citation.supported && <span title="the quote does not support the sentence">?</span>}
		</button>
	);
}
