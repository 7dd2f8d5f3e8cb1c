"use client";

import clsx from "clsx";
import {
	ChevronRight,
	CircleHelp,
	Eye,
	GitFork,
	ListChecks,
	MessageSquare,
	Route,
	Scale,
	Scissors,
	ShieldQuestion,
	Wrench,
} from "lucide-react";
import { type ReactNode, useState } from "react";
import type { StepView } from "@/api/client";
import { Button, IconButton } from "@/ui";
import { count, moment } from "@/ui/words";
import { ROW_PX, useRows } from "./rows";
import { brief } from "./words";

const ICONS: Record<string, typeof Wrench> = {
	route: Route,
	plan: ListChecks,
	thought: MessageSquare,
	tool_call: Wrench,
	tool_result: Eye,
	approval: ShieldQuestion,
	reflection: CircleHelp,
	critique: Scale,
	answer: ChevronRight,
	compaction: Scissors,
};

type Props = {
	steps: StepView[];
	height?: number;
	onFork?: (seq: number) => void;
	onDecide?: (seq: number, decision: "approve" | "deny") => void;
	/** The approval steps that wait for an answer. */
	waiting?: number[];
	/** More steps are coming: whoever looks at the last one sees the next, too. */
	growing?: boolean;
};

/** The trace of a run. Long ones are drawn only where they are looked at. */
export function Steps({ steps, height, onFork, onDecide, waiting, growing }: Props) {
	const [open, setOpen] = useState<number | null>(null);
	const at = steps.findIndex((step) => step.seq === open);
	const given = { rows: steps.length, height, growing, more: waiting?.length, open: at };
	const { box, onScroll, first, last, style } = useRows(given);
	return (
		<div ref={box} className="nowheel overflow-auto" style={{ maxHeight: height }} onScroll={onScroll}>
			<ol aria-label="steps" style={style}>
				{steps.slice(first, last).map((step) => (
					<Row
						key={step.seq}
						step={step}
						open={open === step.seq}
						onToggle={() => setOpen(open === step.seq ? null : step.seq)}
						onFork={onFork}
						onDecide={waiting?.includes(step.seq) ? onDecide : undefined}
					/>
				))}
			</ol>
		</div>
	);
}

function Row({
	step,
	open,
	onToggle,
	onFork,
	onDecide,
}: {
	step: StepView;
	open: boolean;
	onToggle: () => void;
	onFork?: (seq: number) => void;
	onDecide?: (seq: number, decision: "approve" | "deny") => void;
}) {
	const Icon = ICONS[step.kind] ?? CircleHelp;
	return (
		<li data-open={open || undefined} className="border-line border-b last:border-0">
			<div className="flex items-center">
				<button
					type="button"
					aria-expanded={open}
					onClick={onToggle}
					className="flex min-w-0 flex-1 items-center gap-2 px-1 py-1 text-left hover:bg-raised"
					style={{ minHeight: ROW_PX - 1 }}
				>
					<span className="w-6 shrink-0 text-right text-soft text-xs tabular-nums">{step.seq}</span>
					<Icon size={14} aria-hidden className="shrink-0 text-soft" />
					<span className={clsx("truncate", step.tool?.error && "text-bad")}>{summary(step)}</span>
				</button>
				{onFork && (
					<IconButton label={`fork after step ${step.seq}`} onClick={() => onFork(step.seq)}>
						<GitFork size={14} aria-hidden />
					</IconButton>
				)}
			</div>
			{onDecide && (
				<div className="flex flex-wrap items-center gap-2 px-9 pb-2">
					{step.text && <p className="w-full whitespace-pre-wrap break-words text-soft text-xs">{step.text}</p>}
					<Button tone="accent" onClick={() => onDecide(step.seq, "approve")}>
						Approve
					</Button>
					<Button tone="danger" onClick={() => onDecide(step.seq, "deny")}>
						Deny
					</Button>
				</div>
			)}
			{open && <Details step={step} />}
		</li>
	);
}

function summary(step: StepView): string {
	const { tool, text, kind } = step;
	if (tool && kind === "tool_call") return `${tool.name}(${brief(tool.arguments)})`;
	if (tool?.error) return `${tool.name}: ${tool.error}`;
	if (tool && kind === "tool_result") return `${tool.name} → ${brief(tool.result)}`;
	if (tool && kind === "approval") {
		const answer = step.decision ? ` → ${step.decision.decision === "approve" ? "approved" : "denied"}` : "";
		return `approval for ${tool.name}(${brief(tool.arguments)})${answer}`;
	}
	return text?.trim() || kind.replaceAll("_", " ");
}

function Details({ step }: { step: StepView }) {
	const { tool, usage } = step;
	return (
		<dl className="space-y-2 px-9 pb-3 text-xs">
			<Detail name="kind">
				{step.kind.replaceAll("_", " ")} by {step.agent}, {new Date(step.at).toLocaleTimeString()}
			</Detail>
			{step.text && <Detail name="text">{step.text}</Detail>}
			{tool && <Detail name="arguments">{pretty(tool.arguments)}</Detail>}
			{tool?.result !== undefined && tool?.result !== null && <Detail name="result">{pretty(tool.result)}</Detail>}
			{tool?.result_blob && <Detail name="result">{count(tool.result_blob.size_bytes, "byte")}, kept apart</Detail>}
			{tool?.error && <Detail name="error">{tool.error}</Detail>}
			{step.decision && (
				<Detail name="decision">
					{step.decision.decision === "approve" ? "approved" : "denied"}, {moment(step.decision.decided_at)}
					{step.decision.note && `: ${step.decision.note}`}
				</Detail>
			)}
			{tool?.duration_ms != null && <Detail name="time">{tool.duration_ms} ms</Detail>}
			{usage && (
				<Detail name="tokens">
					{usage.prompt_tokens} read, {usage.completion_tokens} written
				</Detail>
			)}
		</dl>
	);
}

function Detail({ name, children }: { name: string; children: ReactNode }) {
	return (
		<div>
			<dt className="text-soft">{name}</dt>
			<dd className="max-h-60 overflow-auto whitespace-pre-wrap break-words font-mono">{children}</dd>
		</div>
	);
}

const MAX_SHOWN = 20_000;

function pretty(value: unknown): string {
	const text = typeof value === "string" ? value : JSON.stringify(value, null, 2);
	const more = text.length - MAX_SHOWN;
	return more > 0 ? `${text.slice(0, MAX_SHOWN)}\n… ${count(more, "more character")}` : text;
}
