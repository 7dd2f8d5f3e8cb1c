"use client";

import Link from "next/link";
import { useState } from "react";
import { type AskDone, call, describe, type SearchDone } from "@/api/client";
import { addressOf } from "@/documents/DocumentPage";
import { Answer } from "@/runs/Answer";
import { Button, Input, Panel } from "@/ui";

const RESULTS = 10;

/** A question to a collection: what each stage of the search makes of it, and the cited answer. */
export function SearchBench({ namespace, collection }: { namespace: string; collection: string }) {
	const [query, setQuery] = useState("");
	const [found, setFound] = useState<SearchDone | null>(null);
	const [answer, setAnswer] = useState<AskDone | null>(null);
	const [busy, setBusy] = useState(false);
	const [problem, setProblem] = useState<string | null>(null);

	const run = async (what: "search" | "ask") => {
		if (!query.trim()) return;
		setBusy(true);
		setProblem(null);
		try {
			const body = { query, collection, namespace, ...(what === "search" ? { k: RESULTS } : {}) };
			if (what === "search") setFound(await call<SearchDone>("/rag/search", { method: "POST", body }));
			else setAnswer(await call<AskDone>("/rag/ask", { method: "POST", body, timeoutMs: 5 * 60_000 }));
		} catch (error) {
			setProblem(describe(error));
		} finally {
			setBusy(false);
		}
	};

	return (
		<Panel title={`Search ${collection}`}>
			<form
				className="flex gap-2"
				onSubmit={(event) => {
					event.preventDefault();
					void run("search");
				}}
			>
				<Input aria-label="query" value={query} onChange={(event) => setQuery(event.target.value)} />
				<Button type="submit" tone="accent" disabled={busy}>
					Search
				</Button>
				<Button disabled={busy} onClick={() => void run("ask")}>
					Ask
				</Button>
			</form>
			{problem && (
				<p role="alert" className="mt-2 text-bad">
					{problem}
				</p>
			)}
			{answer && (
				<div className="mt-3 rounded-md bg-raised p-3" aria-live="polite">
					<Answer text={answer.answer} citations={answer.citations} namespace={namespace} />
				</div>
			)}
			{found && <Results found={found} namespace={namespace} />}
		</Panel>
	);
}

function Results({ found, namespace }: { found: SearchDone; namespace: string }) {
	const score = (value: number | null | undefined) => (value == null ? "–" : value.toFixed(3));
	const times = found.took_ms;
	return (
		<div className="mt-3 overflow-x-auto">
			<p className="text-soft text-xs">
				embed {times.embed.toFixed(1)} ms · dense {times.dense.toFixed(1)} · sparse {times.sparse.toFixed(1)} · fuse{" "}
				{times.fuse.toFixed(1)}
				{times.rerank != null && ` · rerank ${times.rerank.toFixed(1)}`}
			</p>
			<table className="w-full">
				<thead>
					<tr className="text-left text-soft text-xs">
						<th>text</th>
						<th className="text-right">dense</th>
						<th className="text-right">sparse</th>
						<th className="text-right">fused</th>
						<th className="text-right">reranked</th>
					</tr>
				</thead>
				<tbody>
					{found.items.map((item) => (
						<tr key={item.chunk_id} className="border-line border-t align-top">
							<td className="py-1 pr-3">
								<span className="line-clamp-3 whitespace-pre-wrap">{item.text}</span>
								<Link
									prefetch={false}
									href={addressOf({ id: item.document_id, namespace, span: item.span })}
									className="break-all text-accent text-xs underline"
								>
									{item.source} {item.span.start}–{item.span.end}
								</Link>
							</td>
							<td className="py-1 text-right tabular-nums">{score(item.scores.dense)}</td>
							<td className="py-1 text-right tabular-nums">{score(item.scores.sparse)}</td>
							<td className="py-1 text-right tabular-nums">{score(item.scores.fused)}</td>
							<td className="py-1 text-right tabular-nums">{score(item.scores.rerank)}</td>
						</tr>
					))}
				</tbody>
			</table>
		</div>
	);
}
