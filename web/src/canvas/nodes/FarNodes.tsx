"use client";

/** How nodes are drawn that are too far away to be read: hundreds of them are on the screen then. Nothing that is cut, rounded or connected. */

import { type NodeProps, Position } from "@xyflow/react";
import clsx from "clsx";
import { useRuns } from "@/runs/store";
import type { AgentData, CanvasNode, NodeKind } from "../document";
import { useCanvas } from "../store";
import { nameFrom } from "./far";
import type { FlowNode } from "./index";
import { SIZES } from "./sizes";
import { edgeOf } from "./states";

/** As large as it was near, so that nothing moves. */
function sizeOf(node: CanvasNode): { width: number; height: number } {
	const { initialWidth, initialHeight } = SIZES[node.kind];
	return { width: node.width ?? initialWidth, height: node.height ?? initialHeight };
}

/** Where connections end: the handles themselves are not drawn. */
export function farHandles(node: CanvasNode): FlowNode["handles"] {
	const { width, height } = sizeOf(node);
	const at = { id: null, y: height / 2, width: 0, height: 0 };
	const source = { ...at, type: "source", position: Position.Right, x: width } as const;
	const target = { ...at, type: "target", position: Position.Left, x: 0 } as const;
	return node.kind === "agent" ? [target, source] : [source];
}

export function FarAgent({ id, data, selected }: NodeProps<FlowNode>) {
	const { agent } = data.node.data as AgentData;
	const runId = useCanvas((s) => s.runOf[id]);
	const live = useRuns((s) => (runId ? s.runs[runId]?.status : undefined));
	const name = agent ?? "supervisor";
	return (
		<article
			aria-label={`agent ${name}`}
			className={clsx("whitespace-nowrap border-4 bg-surface p-4", edgeOf(selected, live))}
			style={sizeOf(data.node)}
		>
			<p className="font-semibold text-4xl">{nameFrom(name)}</p>
			{live && <p className="text-3xl text-soft">{live.replaceAll("_", " ")}</p>}
		</article>
	);
}

/** The colour says the kind, as in the overview. */
const EDGES: Record<Exclude<NodeKind, "agent" | "group">, string> = {
	tool: "border-warn",
	collection: "border-good",
	note: "border-line",
};

/** What is no agent is a surface. */
export function FarBox({ label, data, selected }: Pick<NodeProps<FlowNode>, "data" | "selected"> & { label: string }) {
	const edge = EDGES[data.node.kind as keyof typeof EDGES];
	return (
		<article
			aria-label={label}
			className={clsx("border-4 bg-raised", selected ? "border-accent ring-1 ring-accent" : edge)}
			style={sizeOf(data.node)}
		/>
	);
}
