"use client";

import { Handle, type NodeProps, Position } from "@xyflow/react";
import clsx from "clsx";
import { Bot, Play, RotateCw, Route, Square } from "lucide-react";
import Link from "next/link";
import { memo } from "react";
import { useShallow } from "zustand/react/shallow";
import { Answer } from "@/runs/Answer";
import { ChainTotal } from "@/runs/ChainTotal";
import { Figures } from "@/runs/Figures";
import { hasEnded, pendingApprovals } from "@/runs/fold";
import { Steps } from "@/runs/Steps";
import { isGoing, useRuns } from "@/runs/store";
import { Writing } from "@/runs/Written";
import { IconButton, Status } from "@/ui";
import { type AgentNode as AgentOfCanvas, LIMITS } from "../document";
import { NameField } from "../NameField";
import { nameOf, typeOf } from "../names";
import { agentsBefore } from "../plan";
import { useCanvas } from "../store";
import { FarAgent } from "./FarNodes";
import type { FlowNode } from "./index";
import { edgeOf } from "./states";

const NOTHING: string[] = [];
/** What is longer than a node is scrolled, by keys as well: they move no node then. */
const SCROLLS = "nodrag nowheel nokey max-h-72 overflow-auto";

/** An agent: its task, and live what it does. */
export const AgentNode = memo(function AgentNode(props: NodeProps<FlowNode>) {
	return props.data.far ? <FarAgent {...props} /> : <NearAgent {...props} />;
});

function NearAgent({ id, data, selected }: NodeProps<FlowNode>) {
	const whole = data.node as AgentOfCanvas;
	const node = whole.data;
	const { change, run, stop, fork, say } = useCanvas(
		useShallow((s) => ({ change: s.change, run: s.run, stop: s.stop, fork: s.fork, say: s.say })),
	);
	const runId = useCanvas((s) => s.runOf[id]);
	const problem = useCanvas((s) => s.problems[id]);
	const live = useRuns((s) => (runId ? s.runs[runId] : undefined));
	const { decide, resume } = useRuns(useShallow((s) => ({ decide: s.decide, resume: s.resume })));
	const before = useCanvas((s) => s.runBefore[id]);
	const busy = isGoing(live);
	// A run without a step may wait for those before it in its chain. Only then is the canvas looked at.
	const idle = busy && live.steps.length === 0;
	const runsBefore = useCanvas(
		useShallow((s) => (idle ? agentsBefore(s.history.present, id).flatMap((one) => s.runOf[one.id] ?? []) : NOTHING)),
	);
	const waits = useRuns((s) => runsBefore.some((one) => s.runs[one] && !hasEnded(s.runs[one])));
	const lookAgain = async () => {
		if (runId && (await resume(runId))) say("the run was asked to look again");
	};
	const Icon = node.agent ? Bot : Route;
	return (
		<article
			aria-label={`agent ${nameOf(whole)}`}
			className={clsx("w-96 rounded-lg border bg-surface shadow-sm", edgeOf(selected, live?.status))}
		>
			<Handle type="target" position={Position.Left} />
			<header className="flex items-center gap-2 border-line border-b px-3 py-1.5">
				<Icon size={16} aria-hidden className="shrink-0 text-accent" />
				<NameField
					node={whole}
					label="name of the agent"
					className="nodrag min-h-[24px] min-w-0 max-w-48 [field-sizing:content] rounded border border-transparent bg-transparent px-1 font-semibold hover:border-line focus:border-line"
				/>
				<span className="min-w-0 max-w-24 truncate text-soft text-xs">{typeOf(node)}</span>
				<span className="ml-auto flex shrink-0 items-center gap-1">
					{live && <Status of={waits ? "queued" : live.status} />}
					{busy && (
						<IconButton label="resume" className="nodrag" onClick={() => void lookAgain()}>
							<RotateCw size={14} aria-hidden />
						</IconButton>
					)}
					{busy ? (
						<IconButton label="stop" className="nodrag" onClick={() => void stop(id)}>
							<Square size={14} aria-hidden />
						</IconButton>
					) : (
						<IconButton label="run" className="nodrag" onClick={() => void run(id)}>
							<Play size={14} aria-hidden />
						</IconButton>
					)}
				</span>
			</header>
			<div className="space-y-2 p-3">
				<textarea
					aria-label="task"
					className="nodrag nowheel w-full resize-y rounded-md border border-line bg-ground p-2 placeholder:text-soft"
					rows={3}
					placeholder="What is to be done? {{input}} stands for the answers of connected agents."
					maxLength={LIMITS.text}
					value={node.task}
					onChange={(event) => change(id, { task: event.target.value })}
					onKeyDown={(event) => {
						if (event.key === "Enter" && (event.ctrlKey || event.metaKey) && !event.shiftKey) void run(id);
					}}
				/>
				{problem && (
					<p role="alert" className="text-bad text-xs">
						{problem}
					</p>
				)}
				{live && (
					<>
						<div className="flex flex-wrap items-center gap-x-3">
							{live.agent && live.agent !== node.agent && (
								<p className="max-w-full truncate font-medium text-xs">→ {live.agent}</p>
							)}
							<Figures run={live} />
							<ChainTotal link={live.result?.chain} />
							<Link className="nodrag hit text-accent text-xs" prefetch={false} href={`/ui/runs/?id=${live.runId}`}>
								in full
							</Link>
							{before && (
								<Link
									className="nodrag hit text-accent text-xs"
									prefetch={false}
									href={`/ui/runs/?id=${before}&with=${live.runId}`}
								>
									compare with the one before
								</Link>
							)}
						</div>
						{live.problem && <p className="text-bad text-xs">{live.problem}</p>}
						{busy && !live.connected && <p className="text-warn text-xs">connection lost; joining again…</p>}
						<div className={clsx("nodrag rounded-md border border-line", live.steps.length === 0 && "hidden")}>
							<Steps
								key={live.runId}
								steps={live.steps}
								height={180}
								waiting={pendingApprovals(live)}
								growing={busy}
								onDecide={(seq, decision) => void decide(live.runId, seq, decision)}
								onFork={(seq) => void fork(id, seq)}
							/>
						</div>
						{live.writing && (
							// Its end stays in sight while it grows, unless somebody reads above.
							// biome-ignore lint/a11y/noNoninteractiveTabindex: what scrolls must be reached by keyboard
							<div tabIndex={0} className={clsx(SCROLLS, "flex flex-col-reverse")}>
								<Writing text={live.writing.text} />
							</div>
						)}
						<div aria-live="polite" tabIndex={live.result?.answer ? 0 : undefined} className={SCROLLS}>
							{live.result?.answer && (
								<Answer text={live.result.answer} citations={live.result.citations} namespace={live.result.namespace} />
							)}
							{live.result?.error && (
								<p className="text-bad">
									{live.result.error.message}
									{live.result.error.hint && <span className="block text-soft">{live.result.error.hint}</span>}
								</p>
							)}
						</div>
					</>
				)}
			</div>
			<Handle type="source" position={Position.Right} />
		</article>
	);
}
