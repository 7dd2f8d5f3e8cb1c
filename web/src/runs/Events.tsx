"use client";

import { useMemo, useState } from "react";
import type { StepView } from "@/api/client";
import { Button, Empty, Select } from "@/ui";
import { download } from "@/ui/download";
import { count } from "@/ui/words";
import { asLines, kindsOf, sinceFirst } from "./events";
import { ROW_PX, useRows } from "./rows";

type Props = { runId: string; steps: StepView[]; height: number; growing: boolean };

/** The events of a run as the log has them: when, what, by whom, and what it took. Each opens to its JSON. */
export function Events({ runId, steps, height, growing }: Props) {
	const [kind, setKind] = useState("");
	const [open, setOpen] = useState<number | null>(null);
	const shown = useMemo(() => (kind ? steps.filter((step) => step.kind === kind) : steps), [steps, kind]);
	const at = shown.findIndex((step) => step.seq === open);
	const { box, onScroll, first, last, style } = useRows({ rows: shown.length, height, growing, open: at });
	if (steps.length === 0) return <Empty>No events so far.</Empty>;
	return (
		<>
			<div className="mb-2 flex flex-wrap items-center gap-2">
				<Select
					aria-label="kind of event"
					className="w-auto!"
					value={kind}
					onChange={(event) => setKind(event.target.value)}
				>
					<option value="">every kind</option>
					{kindsOf(steps).map((one) => (
						<option key={one} value={one}>
							{one.replaceAll("_", " ")}
						</option>
					))}
				</Select>
				<Button onClick={() => download(`${runId}.jsonl`, asLines(shown), "application/x-ndjson")}>
					Download as JSON lines
				</Button>
			</div>
			<div ref={box} className="overflow-auto" style={{ maxHeight: height }} onScroll={onScroll}>
				<ol aria-label="events" style={style}>
					{shown.slice(first, last).map((step) => (
						<Event
							key={step.seq}
							step={step}
							since={sinceFirst(step, steps[0])}
							open={open === step.seq}
							onToggle={() => setOpen(open === step.seq ? null : step.seq)}
						/>
					))}
				</ol>
			</div>
		</>
	);
}

type EventProps = { step: StepView; since: string; open: boolean; onToggle: () => void };

function Event({ step, since, open, onToggle }: EventProps) {
	const { seq, kind, agent, tool, usage } = step;
	return (
		<li data-open={open || undefined} className="border-line border-b last:border-0">
			<button
				type="button"
				aria-expanded={open}
				onClick={onToggle}
				className="flex w-full items-center gap-3 px-1 text-left text-xs tabular-nums hover:bg-raised"
				style={{ minHeight: ROW_PX - 1 }}
			>
				<span className="w-8 shrink-0 text-right text-soft">{seq}</span>
				<span className="w-20 shrink-0 text-right text-soft" title={new Date(step.at).toISOString()}>
					{since}
				</span>
				<span className="w-24 shrink-0 font-medium">{kind.replaceAll("_", " ")}</span>
				<span className="min-w-0 flex-1 truncate text-soft">{[agent, tool?.name].filter(Boolean).join(" · ")}</span>
				<span className="shrink-0 text-soft">
					{usage && count(usage.total_tokens, "token")} {tool?.duration_ms != null && `${tool.duration_ms} ms`}
				</span>
			</button>
			{open && (
				<pre className="max-h-80 overflow-auto whitespace-pre-wrap break-words bg-raised p-2 font-mono text-xs">
					{JSON.stringify(step, null, 2)}
				</pre>
			)}
		</li>
	);
}
