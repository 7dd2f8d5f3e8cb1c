"use client";

import Link from "next/link";
import { useSearchParams } from "next/navigation";
import { useMemo } from "react";
import { Empty } from "@/ui";
import { DocumentReader } from "./DocumentReader";
import type { Wanted } from "./read";

/** The address of a place in a document: `?id=`, and `namespace`, `start` and `end` where they matter. */
export function addressOf({ id, namespace, span }: Wanted): string {
	const query = new URLSearchParams({ id, namespace });
	if (span) {
		query.set("start", String(span.start));
		query.set("end", String(span.end));
	}
	return `/ui/documents/?${query}`;
}

export function DocumentPage() {
	const query = useSearchParams();
	const wanted = useMemo(() => wantedBy(query), [query]);
	return (
		<div className="mx-auto max-w-4xl p-3">
			<h1 className="mb-2 font-semibold text-base">Document</h1>
			{wanted ? (
				<DocumentReader key={query.toString()} wanted={wanted} />
			) : (
				<Empty>
					No document is named. Choose one among{" "}
					<Link href="/ui/collections/" prefetch={false} className="text-accent underline">
						the collections
					</Link>
					, or open a source of an answer.
				</Empty>
			)}
		</div>
	);
}

function wantedBy(query: URLSearchParams): Wanted | null {
	const id = query.get("id");
	if (!id) return null;
	const [start, end] = [Number(query.get("start") ?? Number.NaN), Number(query.get("end") ?? Number.NaN)];
	const span = Number.isSafeInteger(start) && Number.isSafeInteger(end) && start >= 0 && end >= start;
	return { id, namespace: query.get("namespace") ?? "default", span: span ? { start, end } : null };
}
