/** Where nodes go and how large they are, as React Flow tells. Pure. */

import type { Node, NodeChange } from "@xyflow/react";
import type { CanvasDocument } from "./document";

type Place = { x: number; y: number };
type Size = { width: number; height: number };
/** `ends`: the last of a drag's, also of one that is broken off; one that a key makes is the last one, too. */
export type Moves = { moved: Map<string, Place>; sized: Map<string, Size>; ends: boolean };

/** What changes say of places and sizes. */
export function movesOf<N extends Node>(changes: NodeChange<N>[]): Moves {
	const moves: Moves = { moved: new Map(), sized: new Map(), ends: false };
	for (const change of changes) {
		if (change.type === "position" && change.position) moves.moved.set(change.id, change.position);
		if (change.type === "position" && change.dragging === false) moves.ends = true;
		if (change.type === "dimensions" && change.dimensions) moves.sized.set(change.id, change.dimensions);
	}
	return moves;
}

/** The canvas with its nodes there; one that says nothing new of a node leaves the node as it is. */
export function placed(document: CanvasDocument, { moved, sized }: Moves): CanvasDocument {
	return {
		...document,
		nodes: document.nodes.map((node) => {
			const [place, size] = [moved.get(node.id), sized.get(node.id)];
			if (!place && !size) return node;
			return { ...node, ...(place ? { x: place.x, y: place.y } : {}), ...(size ?? {}) };
		}),
	};
}
