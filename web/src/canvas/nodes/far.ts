import type { ReactFlowState } from "@xyflow/react";

/** Nobody reads a node that is drawn smaller than this; only its name and state are drawn then. */
const FAR_ZOOM = 0.35;
/** Up to so many nodes all are drawn, wherever they are. */
const FEW = 100;
/** From afar up to so many: they are simple then, and to look which ones are in view takes longer than to draw them. */
const MANY = 1_000;

export function isFar({ transform }: Pick<ReactFlowState, "transform">): boolean {
	return transform[2] < FAR_ZOOM;
}

/** Which nodes are drawn. */
export function drawnOf(nodes: number, far: boolean): "all" | "visible" {
	return nodes <= (far ? MANY : FEW) ? "all" : "visible";
}

/** Letters of a name that fit on a node from afar. */
const LETTERS = 16;

export function nameFrom(name: string): string {
	return name.length > LETTERS ? `${name.slice(0, LETTERS - 1)}…` : name;
}
