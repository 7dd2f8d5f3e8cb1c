"use client";

/** How each kind of node is drawn. */

import { Handle, type Node, type NodeProps, type NodeTypes, Position } from "@xyflow/react";
import clsx from "clsx";
import { BookOpen, Wrench } from "lucide-react";
import { memo, type ReactNode } from "react";
import {
	type CanvasNode,
	type CollectionData,
	type GroupData,
	LIMITS,
	type NoteData,
	type ToolData,
} from "../document";
import { useCanvas } from "../store";
import { AgentNode } from "./AgentNode";
import { FarBox } from "./FarNodes";

/** `far`: too small on the screen to be read. */
export type FlowNode = Node<{ node: CanvasNode; far: boolean }>;

type ChipProps = Pick<NodeProps<FlowNode>, "data" | "selected"> & { icon: ReactNode; kind: string; name: string };

function Chip({ data, selected, icon, kind, name }: ChipProps) {
	if (data.far) return <FarBox label={`${kind} ${name}`} data={data} selected={selected} />;
	return (
		<article
			aria-label={`${kind} ${name}`}
			className={clsx(
				"flex items-center gap-2 rounded-lg border bg-surface px-3 py-2 shadow-sm",
				selected ? "border-accent" : "border-line",
			)}
		>
			{icon}
			<span className="font-medium">{name}</span>
			<span className="text-soft text-xs">{kind}</span>
			<Handle type="source" position={Position.Right} />
		</article>
	);
}

const ToolNode = memo(({ data, selected }: NodeProps<FlowNode>) => (
	<Chip
		data={data}
		selected={selected}
		kind="tool"
		name={(data.node.data as ToolData).tool}
		icon={<Wrench size={16} aria-hidden className="text-warn" />}
	/>
));
ToolNode.displayName = "ToolNode";

const CollectionNode = memo(({ data, selected }: NodeProps<FlowNode>) => (
	<Chip
		data={data}
		selected={selected}
		kind="collection"
		name={(data.node.data as CollectionData).collection}
		icon={<BookOpen size={16} aria-hidden className="text-good" />}
	/>
));
CollectionNode.displayName = "CollectionNode";

const NoteNode = memo(({ id, data, selected }: NodeProps<FlowNode>) => {
	const change = useCanvas((s) => s.change);
	if (data.far) return <FarBox label="note" data={data} selected={selected} />;
	return (
		<article
			aria-label="note"
			className={clsx("rounded-md border bg-raised", selected ? "border-accent" : "border-line")}
		>
			<p className="px-2 pt-1 text-soft text-xs">note</p>
			<textarea
				aria-label="note text"
				className="nodrag nowheel h-28 w-56 resize bg-transparent p-2 text-ink"
				maxLength={LIMITS.text}
				value={(data.node.data as NoteData).text}
				onChange={(event) => change(id, { text: event.target.value })}
			/>
		</article>
	);
});
NoteNode.displayName = "NoteNode";

const GroupNode = memo(({ id, data, selected }: NodeProps<FlowNode>) => {
	const change = useCanvas((s) => s.change);
	return (
		<div
			className={clsx("h-full w-full rounded-xl border-2 border-dashed", selected ? "border-accent" : "border-soft")}
		>
			<input
				aria-label="group title"
				className="nodrag m-2 min-h-[24px] rounded bg-transparent px-1 font-semibold"
				maxLength={LIMITS.name}
				value={(data.node.data as GroupData).title}
				onChange={(event) => change(id, { title: event.target.value })}
			/>
		</div>
	);
});
GroupNode.displayName = "GroupNode";

export const NODE_TYPES: NodeTypes = {
	agent: AgentNode,
	tool: ToolNode,
	collection: CollectionNode,
	note: NoteNode,
	group: GroupNode,
};
