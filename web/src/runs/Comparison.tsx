"use client";

import clsx from "clsx";
import Link from "next/link";
import { useMemo } from "react";
import type { RunView } from "@/api/client";
import { usePolled } from "@/api/polling";
import { Empty, Panel, Status } from "@/ui";
import { Answer } from "./Answer";
import { compareSteps, differs, parting } from "./compare";
import { Figures } from "./Figures";
import { isGoing, useFollowed } from "./store";

/** Two runs beside each other: how they ended, what they cost, and where their steps part. */
export function Comparison({ first, second }: { first: string; second: string }) {
	const [a, b] = [useFollowed(first), useFollowed(second)];
	const [left, right] = [a?.steps, b?.steps];
	const rows = useMemo(() => compareSteps(left ?? [], right ?? []), [left, right]);
	if (!a || !b) return null;
	const going = { left: isGoing(a), right: isGoing(b) };
	return (
		<>
			<div className="grid grid-cols-2 gap-3">
				<Side id={first} />
				<Side id={second} />
			</div>
			<Panel title="Step by step">
				{rows.length === 0 ? (
					<Empty>No steps so far.</Empty>
				) : (
					<p className="mb-2 text-soft text-xs">{parting(rows, going)}</p>
				)}
				<ol aria-label="steps of both">
					{rows.map((row) => (
						// Rows that nobody looks at are not laid out, however many there are.
						<li
							key={row.seq}
							className={clsx(
								"grid grid-cols-[2.5rem_minmax(0,1fr)_minmax(0,1fr)] gap-x-3 border-line border-t py-1 [contain-intrinsic-size:auto_30px] [content-visibility:auto]",
								differs(row, going) && "bg-raised",
							)}
						>
							<span className="text-right text-soft tabular-nums">{row.seq}</span>
							<span className="whitespace-pre-wrap break-words">{row.left}</span>
							<span className="whitespace-pre-wrap break-words">{row.right}</span>
						</li>
					))}
				</ol>
			</Panel>
		</>
	);
}

function Side({ id }: { id: string }) {
	const run = useFollowed(id);
	// The stream says at its end only what was asked, and of whom.
	const asked = usePolled<RunView>(run && !run.result ? `/runs/${encodeURIComponent(id)}` : null, 60_000);
	if (!run) return null;
	const { result } = run;
	const link = result?.chain ?? asked.data?.chain;
	return (
		<Panel title={result?.task ?? asked.data?.task ?? run.agent ?? id} actions={<Status of={run.status} />}>
			{link && <p className="break-words font-medium">{link.name}</p>}
			<Link href={`/ui/runs/?id=${id}`} prefetch={false} className="hit break-all font-mono text-accent text-xs">
				{id}
			</Link>
			<Figures run={run} />
			{run.problem && <p className="text-bad">{run.problem}</p>}
			<div className="mt-2 max-h-60 overflow-auto">
				{result?.answer && <Answer text={result.answer} citations={result.citations} namespace={result.namespace} />}
				{result?.error && <p className="text-bad">{result.error.message}</p>}
			</div>
		</Panel>
	);
}
