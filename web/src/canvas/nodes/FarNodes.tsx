"use client";

/** How nodes are drawn that are too far away to be read: hundreds of them are on the screen then. Nothing of it is cut, rounded, or to be connected. */

import type { NodeProps } from "@xyflow/react";
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

/** Where a connection ends. React Flow measures it as it does a handle, which would be drawn and listen to all that moves. */
function End({ of }: { of: "source" | "target" }) {
	const side = of === "source" ? "right" : "left";
	return <span className={clsx("absolute top-1/2", of)} data-handlepos={side} style={{ [side]: -6 }} />;
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
			<End of="target" />
			<p className="font-semibold text-4xl">{nameFrom(name)}</p>
			{live && <p className="text-3xl text-soft">{live.replaceAll("_", " ")}</p>}
			<End of="source" />
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
		>
			{data.node.kind !== "note" && <End of="source" />}
		</article>
	);
}
