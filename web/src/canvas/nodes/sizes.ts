import type { NodeKind } from "../document";

/** How large a node is about, before it was drawn. A rem is 14 pixels here. */
export const SIZES: Record<NodeKind, { initialWidth: number; initialHeight: number }> = {
	agent: { initialWidth: 336, initialHeight: 148 },
	tool: { initialWidth: 150, initialHeight: 40 },
	collection: { initialWidth: 180, initialHeight: 40 },
	note: { initialWidth: 198, initialHeight: 124 },
	group: { initialWidth: 320, initialHeight: 200 },
};
