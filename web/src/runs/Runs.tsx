"use client";

import clsx from "clsx";
import Link from "next/link";
import { useSearchParams } from "next/navigation";
import { useState } from "react";
import { useShallow } from "zustand/react/shallow";
import { type AgentEntry, describe, type RunSummary, type RunView } from "@/api/client";
import { usePolled } from "@/api/polling";
import type { Items, Page } from "@/api/shapes";
import { Alert, Button, Empty, Loading, Panel, Select, SettledInput, Status } from "@/ui";
import { count, moment } from "@/ui/words";
import { Answer } from "./Answer";
import { ChainTotal } from "./ChainTotal";
import { Comparison } from "./Comparison";
import { Events } from "./Events";
import { Figures } from "./Figures";
import { hasEnded, pendingApprovals } from "./fold";
import { Steps } from "./Steps";
import { useFollowed, useRuns } from "./store";
import { Tree } from "./Tree";
import { Writing } from "./Written";
import { whoRan } from "./words";

const STATUSES = ["queued", "running", "waiting_approval", "succeeded", "failed", "cancelled"];

/** What happened in a run, to be read or as the log has it. */
const VIEWS = ["steps", "events"] as const;
const TRACE_PX = 560;

/** All runs, and one or two of them in full: `?id=` and `?with=`. */
export function Runs() {
	const query = useSearchParams();
	const id = query.get("id");
	const other = query.get("with");
	const [status, setStatus] = useState("");
	const [agent, setAgent] = useState("");
	const [namespace, setNamespace] = useState("");
	const agents = usePolled<Items<AgentEntry>>("/agents", 60_000);
	const [cursor, setCursor] = useState<string[]>([]);
	const path = new URLSearchParams({ limit: "50" });
	if (status) path.set("status", status);
	if (agent) path.set("agent", agent);
	if (namespace) path.set("namespace", namespace);
	const at = cursor.at(-1);
	if (at) path.set("cursor", at);
	const page = usePolled<Page<RunSummary>>(`/runs?${path}`, 3_000);
	return (
		<div className="grid grid-cols-[minmax(0,1fr)] items-start gap-3 p-3 lg:grid-cols-[minmax(20rem,26rem)_minmax(0,1fr)]">
			<h1 className="sr-only">Runs</h1>
			<Panel
				title="Runs"
				actions={
					<Select
						aria-label="status"
						className="w-auto!"
						value={status}
						onChange={(event) => {
							setStatus(event.target.value);
							setCursor([]);
						}}
					>
						<option value="">every status</option>
						{STATUSES.map((one) => (
							<option key={one} value={one}>
								{one.replaceAll("_", " ")}
							</option>
						))}
					</Select>
				}
			>
				<div className="mb-2 grid grid-cols-2 gap-2">
					<Select
						aria-label="agent"
						value={agent}
						onChange={(event) => {
							setAgent(event.target.value);
							setCursor([]);
						}}
					>
						<option value="">every agent</option>
						{agents.data?.items.map((one) => (
							<option key={one.name}>{one.name}</option>
						))}
					</Select>
					<SettledInput
						aria-label="namespace"
						placeholder="every namespace"
						value={namespace}
						onSettle={(next) => {
							setNamespace(next);
							setCursor([]);
						}}
					/>
				</div>
				<Loading of={page} />
				{page.data?.items.length === 0 && (
					<Empty>{status || agent || namespace ? "No run is like this." : "No runs: start one on the canvas."}</Empty>
				)}
				<ul>
					{page.data?.items.map((run) => (
						<li key={run.run_id} className="flex items-center gap-1 border-line border-b last:border-0">
							<Link
								href={`/ui/runs/?id=${run.run_id}`}
								prefetch={false}
								aria-current={run.run_id === id}
								className={clsx(
									"block min-w-0 flex-1 rounded px-2 py-1.5 hover:bg-raised",
									run.run_id === id && "bg-raised",
								)}
							>
								<span className="block truncate">{run.task}</span>
								<span className="flex items-center gap-2 text-soft text-xs">
									<Status of={run.status} />
									<span className="-mr-1 min-w-0 truncate">{whoRan(run)}</span>
									<span className="shrink-0">· {count(run.steps, "step")}</span>
									<time className="ml-auto shrink-0 tabular-nums" dateTime={run.created_at}>
										{moment(run.created_at)}
									</time>
								</span>
							</Link>
							{id && id !== run.run_id && (
								<Link
									href={`/ui/runs/?id=${id}&with=${run.run_id}`}
									prefetch={false}
									aria-label={`compare with ${run.run_id}`}
									className="hit rounded px-2 text-accent text-xs hover:bg-raised"
								>
									compare
								</Link>
							)}
						</li>
					))}
				</ul>
				<div className="mt-2 flex justify-between">
					<Button disabled={cursor.length === 0} onClick={() => setCursor(cursor.slice(0, -1))}>
						Newer
					</Button>
					<Button
						disabled={!page.data?.next_cursor}
						onClick={() => page.data?.next_cursor && setCursor([...cursor, page.data.next_cursor])}
					>
						Older
					</Button>
				</div>
			</Panel>
			<div className="min-w-0 space-y-3">
				{id ? (
					other ? (
						<Comparison first={id} second={other} />
					) : (
						<RunDetail key={id} id={id} />
					)
				) : (
					<Empty>Choose a run: its steps, its answer and what it cost are shown here.</Empty>
				)}
			</div>
		</div>
	);
}

function RunDetail({ id }: { id: string }) {
	const run = useFollowed(id);
	const { cancel, decide, fork, resume } = useRuns(
		useShallow((s) => ({ cancel: s.cancel, decide: s.decide, fork: s.fork, resume: s.resume })),
	);
	const [problem, setProblem] = useState<string | null>(null);
	const [resumed, setResumed] = useState(false);
	const [view, setView] = useState<(typeof VIEWS)[number]>("steps");
	// The stream says at its end only what was asked.
	const asked = usePolled<RunView>(run && !run.result ? `/runs/${encodeURIComponent(id)}` : null, 60_000);
	const link = run?.result?.chain ?? asked.data?.chain;
	if (!run) return null;
	if (run.refused && run.steps.length === 0) return <Empty>{run.problem}</Empty>;
	const forkAt = async (seq: number) => {
		try {
			const made = await fork(id, seq);
			window.history.pushState(null, "", `/ui/runs/?id=${made}`);
		} catch (error) {
			setProblem(describe(error));
		}
	};
	return (
		<>
			<Panel
				title={run.result?.task ?? asked.data?.task ?? id}
				actions={
					<span className="flex items-center gap-2">
						<Status of={run.status} />
						{!hasEnded(run) && (
							<>
								<Button title="Asks a run that waits to look again" onClick={() => void resume(id).then(setResumed)}>
									Resume
								</Button>
								<Button tone="danger" onClick={() => void cancel(id)}>
									Stop
								</Button>
							</>
						)}
					</span>
				}
			>
				{link && <p className="break-words font-medium">{link.name}</p>}
				<p className="mb-2 font-mono text-soft text-xs">{id}</p>
				<Figures run={run} />
				<ChainTotal link={link} />
				{run.result?.stop_reason && (
					<p className="text-soft text-xs">ended: {run.result.stop_reason.replaceAll("_", " ")}</p>
				)}
				{resumed && !hasEnded(run) && (
					<output className="block text-soft text-xs">The run was asked to look again.</output>
				)}
				<Alert>{problem ?? run.problem}</Alert>
			</Panel>
			<Tree id={id} live={run} />
			{(run.result?.answer || run.result?.error || run.writing) && (
				<Panel title="Answer">
					{run.writing && <Writing text={run.writing.text} />}
					{run.result?.answer && (
						<Answer text={run.result.answer} citations={run.result.citations} namespace={run.result.namespace} />
					)}
					{run.result?.error && (
						<p className="text-bad">
							{run.result.error.message}
							{run.result.error.hint && <span className="block text-soft">{run.result.error.hint}</span>}
						</p>
					)}
				</Panel>
			)}
			<Panel
				title={view === "steps" ? "Steps" : "Events"}
				actions={
					<span className="flex gap-1">
						{VIEWS.map((one) => (
							<Button
								key={one}
								tone="quiet"
								className={clsx(one === view && "bg-raised")}
								aria-pressed={one === view}
								onClick={() => setView(one)}
							>
								{one}
							</Button>
						))}
					</span>
				}
			>
				{view === "events" && <Events runId={id} steps={run.steps} height={TRACE_PX} growing={!hasEnded(run)} />}
				{view === "steps" && run.steps.length === 0 && (
					<Empty>{hasEnded(run) ? "It ended before its first step." : "No steps so far."}</Empty>
				)}
				{view === "steps" && (
					<Steps
						steps={run.steps}
						height={TRACE_PX}
						waiting={pendingApprovals(run)}
						growing={!hasEnded(run)}
						onDecide={(seq, decision) => void decide(id, seq, decision)}
						onFork={(seq) => void forkAt(seq)}
					/>
				)}
			</Panel>
		</>
	);
}
