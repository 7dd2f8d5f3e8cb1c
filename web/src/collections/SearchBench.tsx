"use client";

import clsx from "clsx";
import Link from "next/link";
import { useState } from "react";
import { type AskDone, call, describe, type SearchDone } from "@/api/client";
import { addressOf } from "@/documents/DocumentPage";
import { Answer } from "@/runs/Answer";
import { Alert, Button, Empty, Input, Panel, Table } from "@/ui";

const RESULTS = 10;
const STAGES = ["dense", "sparse", "fused", "rerank"] as const;

/** A question to a collection: what each stage of the search makes of it, and the cited answer. */
export function SearchBench({ namespace, collection }: { namespace: string; collection: string }) {
	const [query, setQuery] = useState("");
	const [found, setFound] = useState<SearchDone | null>(null);
	const [answer, setAnswer] = useState<AskDone | null>(null);
	const [busy, setBusy] = useState<"search" | "ask" | null>(null);
	const [problem, setProblem] = useState<string | null>(null);

	const run = async (what: "search" | "ask") => {
		if (!query.trim()) return;
		setBusy(what);
		setProblem(null);
		try {
			const body = { query, collection, namespace, ...(what === "search" ? { k: RESULTS } : {}) };
			if (what === "search") setFound(await call<SearchDone>("/rag/search", { method: "POST", body }));
			else setAnswer(await call<AskDone>("/rag/ask", { method: "POST", body, timeoutMs: 5 * 60_000 }));
		} catch (error) {
			setProblem(describe(error));
		} finally {
			setBusy(null);
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
				<Input
					aria-label="query"
					placeholder={`A question to ${collection}`}
					value={query}
					onChange={(event) => setQuery(event.target.value)}
				/>
				<Button type="submit" tone="accent" disabled={busy !== null || !query.trim()}>
					{busy === "search" ? "Searching…" : "Search"}
				</Button>
				<Button disabled={busy !== null || !query.trim()} onClick={() => void run("ask")}>
					{busy === "ask" ? "Asking…" : "Ask"}
				</Button>
			</form>
			<Alert>{problem}</Alert>
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
	const best = Object.fromEntries(
		STAGES.map((stage) => [
			stage,
			Math.max(...found.items.map((item) => item.scores[stage] ?? Number.NEGATIVE_INFINITY)),
		]),
	);
	const times = found.took_ms;
	return (
		<div className="mt-3 space-y-2">
			<p className="text-soft text-xs tabular-nums">
				embedded {times.embed.toFixed(1)} ms · dense {times.dense.toFixed(1)} ms · sparse {times.sparse.toFixed(1)} ms ·
				fused {times.fuse.toFixed(1)} ms
				{times.rerank != null ? ` · re-ranked ${times.rerank.toFixed(1)} ms` : " · not re-ranked"}
			</p>
			{found.notes?.map((note) => (
				<p key={note} className="text-warn text-xs">
					{note}
				</p>
			))}
			{found.items.length === 0 && <Empty>Nothing is like it.</Empty>}
			{found.items.length > 0 && (
				<Table head={["#", "text", "dense", "sparse", "fused", "re-ranked"]}>
					{found.items.map((item, at) => (
						<tr key={item.chunk_id}>
							<td className="text-soft tabular-nums">{at + 1}</td>
							<td className="w-full min-w-60">
								<span className="line-clamp-3 break-words">{item.text}</span>
								<Link
									prefetch={false}
									href={addressOf({ id: item.document_id, namespace, span: item.span })}
									className="hit break-all text-accent text-xs underline"
								>
									{item.source} {item.span.start}–{item.span.end}
								</Link>
							</td>
							{STAGES.map((stage) => (
								<Score key={stage} value={item.scores[stage]} best={best[stage]} />
							))}
						</tr>
					))}
				</Table>
			)}
		</div>
	);
}

/** What a stage gave a result; the best one of the stage stands out. */
function Score({ value, best }: { value: number | null | undefined; best: number | undefined }) {
	return (
		<td className={clsx("text-right tabular-nums", value != null && value === best && "font-semibold text-good")}>
			{value == null ? "–" : value.toFixed(3)}
		</td>
	);
}
