/** A node that is dragged from the palette. Pure. */

import { type CanvasNode, FORMAT, VERSION } from "./document";
import { importCanvas } from "./exchange";

export const DRAG_TYPE = "application/x-riverrun-node";

/** A node that has no place yet. */
export type Draft = Omit<CanvasNode, "id" | "x" | "y">;

/** Whether a node is dragged, or something that is called one. */
export function isDraft(data: Pick<DataTransfer, "types">): boolean {
	return data.types.includes(DRAG_TYPE);
}

/**
 * The node that is dragged; null for what is none. Another page may let something be dragged under this name, so that it is
 * checked as an import is.
 */
export function readDragged(data: Pick<DataTransfer, "getData">): Draft | null {
	try {
		const draft = { ...(JSON.parse(data.getData(DRAG_TYPE)) as Draft), id: "dragged", x: 0, y: 0 };
		const canvas = { format: FORMAT, version: VERSION, name: "", namespace: "default", nodes: [draft], edges: [] };
		const [node] = importCanvas(JSON.stringify(canvas)).nodes;
		if (!node) return null;
		const { id: _, x: __, y: ___, ...read } = node;
		return read as Draft;
	} catch {
		return null;
	}
}
