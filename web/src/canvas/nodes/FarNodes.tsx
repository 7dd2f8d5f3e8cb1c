"use client";

/** How nodes are drawn that are too far away to be read: hundreds of them are on the screen then. Nothing of it is cut or rounded, and only the one below the mouse has handles. */

import { Handle, type NodeProps, Position } from "@xyflow/react";
import clsx from "clsx";
import { useState } from "react";
import { useRuns } from "@/runs/store";
import type { AgentNode, CanvasNode, NodeKind } from "../document";
import { nameOf } from "../names";
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

/** Whether the mouse is over a node, and what has to listen for it. */
function useMouseOver() {
	const [over, setOver] = useState(false);
	return { over, listeners: { onPointerEnter: () => setOver(true), onPointerLeave: () => setOver(false) } };
}

/** A handle of the node below the mouse, as large on the screen as near by. {@link End}, which stands before it, is where connections end. */
function Grip({ of }: { of: "source" | "target" }) {
	return <Handle className="far" type={of} position={of === "source" ? Position.Right : Position.Left} />;
}

export function FarAgent({ id, data, selected }: NodeProps<FlowNode>) {
	const name = nameOf(data.node as AgentNode);
	const runId = useCanvas((s) => s.runOf[id]);
	const live = useRuns((s) => (runId ? s.runs[runId]?.status : undefined));
	const { over, listeners } = useMouseOver();
	return (
		<article
			{...listeners}
			aria-label={`agent ${name}`}
			className={clsx("whitespace-nowrap border-4 bg-surface p-4", edgeOf(selected, live))}
			style={sizeOf(data.node)}
		>
			<End of="target" />
			<p className="font-semibold text-4xl">{nameFrom(name)}</p>
			{live && <p className="text-3xl text-soft">{live.replaceAll("_", " ")}</p>}
			<End of="source" />
			{over && (
				<>
					<Grip of="target" />
					<Grip of="source" />
				</>
			)}
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
	const { over, listeners } = useMouseOver();
	return (
		<article
			{...listeners}
			aria-label={label}
			className={clsx("border-4 bg-raised", selected ? "border-accent ring-1 ring-accent" : edge)}
			style={sizeOf(data.node)}
		>
			{data.node.kind !== "note" && (
				<>
					<End of="source" />
					{over && <Grip of="source" />}
				</>
			)}
		</article>
	);
}
