import type { NodeKind } from "../document";

/** How large a node is about, before it was drawn. */
export const SIZES: Record<NodeKind, { initialWidth: number; initialHeight: number }> = {
	agent: { initialWidth: 384, initialHeight: 150 },
	tool: { initialWidth: 150, initialHeight: 40 },
	collection: { initialWidth: 180, initialHeight: 40 },
	note: { initialWidth: 230, initialHeight: 140 },
	group: { initialWidth: 320, initialHeight: 200 },
};
