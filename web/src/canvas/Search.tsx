"use client";

import { useReactFlow } from "@xyflow/react";
import { useState } from "react";
import { Button, Dialog, Empty, Input } from "@/ui";
import type { CanvasNode } from "./document";
import { nameOf, typeOf } from "./names";
import { useCanvas } from "./store";

const MOST = 20;
/** How long the view flies to what was found. */
const FLIGHT_MS = 200;

/** Whoever wants less motion is there at once: what a script moves no style sheet stops. */
function isCalm(): boolean {
	return window.matchMedia("(prefers-reduced-motion: reduce)").matches;
}

/** Finds nodes by their words and goes there. */
export function Search({ open, onClose }: { open: boolean; onClose: () => void }) {
	const nodes = useCanvas((s) => s.history.present.nodes);
	const select = useCanvas((s) => s.select);
	const { fitView } = useReactFlow();
	const [query, setQuery] = useState("");
	const words = query.trim().toLowerCase();
	const found = nodes.filter((node) => searched(node).toLowerCase().includes(words)).slice(0, MOST);
	const go = (node: CanvasNode | undefined) => {
		if (!node) return;
		select([node.id]);
		void fitView({ nodes: [{ id: node.id }], maxZoom: 1, duration: isCalm() ? 0 : FLIGHT_MS });
		onClose();
	};
	return (
		<Dialog open={open} onClose={onClose} title="Search">
			<Input
				aria-label="search the canvas"
				value={query}
				onChange={(event) => setQuery(event.target.value)}
				onKeyDown={(event) => event.key === "Enter" && go(found[0])}
			/>
			{found.length === 0 && <Empty>{nodes.length === 0 ? "The canvas is empty." : "No node has these words."}</Empty>}
			<ul className="mt-2">
				{found.map((node) => (
					<li key={node.id}>
						<Button tone="quiet" className="w-full justify-start" onClick={() => go(node)}>
							<span className="text-soft">{node.kind}</span>
							<span className="truncate">{shown(node)}</span>
						</Button>
					</li>
				))}
			</ul>
		</Dialog>
	);
}

function searched(node: CanvasNode): string {
	return node.kind === "agent" ? `${shown(node)} ${typeOf(node.data)}` : shown(node);
}

function shown(node: CanvasNode): string {
	switch (node.kind) {
		case "agent":
			return `${nameOf(node)} ${node.data.task}`;
		case "tool":
			return node.data.tool;
		case "collection":
			return node.data.collection;
		case "note":
			return node.data.text;
		case "group":
			return node.data.title;
	}
}
