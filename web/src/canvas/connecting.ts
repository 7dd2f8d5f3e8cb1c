/** What the mouse can hit, and what is meant by letting go of a connection. Pure. */

import type { ReactFlowState } from "@xyflow/react";
import { type CanvasDocument, nodeOf } from "./document";

/** So near to a handle, in pixels of the screen, a connection that is being drawn snaps to it. */
const SNAP_PX = 20;

/**
 * How many times larger in the canvas than on the screen something has to be that is hit as easily from afar as near by. It grows in
 * steps of √2, never too small: not for every turn of the wheel is something measured or drawn anew.
 */
export function reachOf({ transform }: Pick<ReactFlowState, "transform">): number {
	const steps = Math.ceil(2 * Math.log2(1 / Math.min(1, transform[2])));
	return 2 ** (steps / 2);
}

/** {@link SNAP_PX} in the canvas. */
export function snapRadius(reach: number): number {
	return SNAP_PX * reach;
}

/** The handle that a connection begins at. */
export type Start = { nodeId: string; type: "source" | "target" };

/**
 * The connection that is meant by whoever draws from a handle and lets go over a node, wherever on it. Null over nothing, over a
 * group, and over the node where it began: that is how one gives up.
 */
export function meant(document: CanvasDocument, start: Start, onto: string | undefined) {
	const node = onto === undefined ? undefined : nodeOf(document, onto);
	if (!node || node.kind === "group" || node.id === start.nodeId) return null;
	return start.type === "source" ? { from: start.nodeId, to: node.id } : { from: node.id, to: start.nodeId };
}
