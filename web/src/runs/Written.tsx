"use client";

import { lazy, Suspense } from "react";
import { PlainText, type WrittenProps } from "./PlainText";

/** The parser comes with the first words of a model. Where it can't be had, they stay as they stand. */
const FormattedText = lazy(() => import("./FormattedText").catch(() => ({ default: PlainText })));

/** Words of a model, with the form that its Markdown gives them. They are text, never HTML: nothing in them is fetched, run or a link. */
export function Written(props: WrittenProps) {
	return (
		<Suspense fallback={<PlainText {...props} />}>
			<FormattedText {...props} />
		</Suspense>
	);
}

/** Words that a model is still writing, apart from those that it has answered. */
export function Writing({ text }: { text: string }) {
	return (
		// biome-ignore lint/a11y/useSemanticElements: a set of fields is none
		<div role="group" aria-label="what the model is writing">
			<Written text={text} className="text-soft" />
		</div>
	);
}
