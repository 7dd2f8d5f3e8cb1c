"use client";

import clsx from "clsx";
import { useMemo, useState } from "react";
import { Button } from "@/ui";
import { count } from "@/ui/words";
import { counts, type Pair, pairs, type Row, rows } from "./unified";

/** Rows that are drawn; a longer diff is for a patch, not for eyes. */
const MOST_ROWS = 3_000;
const MARKS = { same: " ", removed: "−", added: "+" } as const;
const GROUND = { same: "", removed: "bg-removed", added: "bg-added" } as const;

/** A unified diff, in one column or in two. */
export function Diff({ diff }: { diff: string }) {
	const [split, setSplit] = useState(true);
	const all = useMemo(() => rows(diff), [diff]);
	const beside = useMemo(() => (split ? pairs(all) : []), [all, split]);
	const { added, removed } = counts(all);
	const many = split ? beside.length : all.length;
	return (
		<section aria-label="changes" className="mt-2">
			<div className="mb-1 flex items-center gap-2">
				<span className="text-good text-xs">{added} added</span>
				<span className="text-bad text-xs">{removed} removed</span>
				<Button className="ml-auto" tone="quiet" onClick={() => setSplit(!split)}>
					{split ? "In one column" : "Side by side"}
				</Button>
			</div>
			{/* biome-ignore lint/a11y/noNoninteractiveTabindex: what scrolls must be reached by keyboard */}
			<div className="max-h-[60vh] overflow-auto rounded border border-line" tabIndex={0}>
				<table className="w-full border-collapse font-mono text-xs">
					<tbody>
						{split
							? beside.slice(0, MOST_ROWS).map((pair, at) => (
									// biome-ignore lint/suspicious/noArrayIndexKey: rows of a diff have no other name
									<SplitRow key={at} pair={pair} />
								))
							: all.slice(0, MOST_ROWS).map((row, at) => (
									// biome-ignore lint/suspicious/noArrayIndexKey: rows of a diff have no other name
									<UnifiedRow key={at} row={row} />
								))}
					</tbody>
				</table>
			</div>
			{many > MOST_ROWS && <p className="text-soft text-xs">The patch has {count(many - MOST_ROWS, "more row")}.</p>}
		</section>
	);
}

function Place({ text }: { text: string }) {
	return (
		<tr className="bg-raised text-soft">
			<td colSpan={4} className="px-2 py-0.5">
				{text}
			</td>
		</tr>
	);
}

function UnifiedRow({ row }: { row: Row }) {
	if (row.kind === "place" || row.kind === "note") return <Place text={row.text} />;
	return (
		<tr className={GROUND[row.kind]}>
			<LineNumber of={row.left} />
			<LineNumber of={row.right} />
			<td className="w-4 select-none px-1">
				<span aria-hidden>{MARKS[row.kind]}</span>
				{row.kind !== "same" && <span className="sr-only">{row.kind}</span>}
			</td>
			<td className="whitespace-pre-wrap break-all pr-2">{row.text}</td>
		</tr>
	);
}

function SplitRow({ pair }: { pair: Pair }) {
	if ("place" in pair) return <Place text={pair.place} />;
	const { left, right } = pair;
	return (
		<tr className="align-top">
			<LineNumber of={left?.line ?? null} />
			<td className={clsx("w-1/2 whitespace-pre-wrap break-all px-1", left?.changed && GROUND.removed)}>
				{left?.changed && <span className="sr-only">removed </span>}
				{left?.text}
			</td>
			<LineNumber of={right?.line ?? null} />
			<td className={clsx("w-1/2 whitespace-pre-wrap break-all px-1", right?.changed && GROUND.added)}>
				{right?.changed && <span className="sr-only">added </span>}
				{right?.text}
			</td>
		</tr>
	);
}

function LineNumber({ of }: { of: number | null }) {
	return <td className="w-10 select-none px-1 text-right align-top text-soft tabular-nums">{of}</td>;
}
