/** Which group a node lies in. Pure. */

import { type CanvasDocument, type CanvasNode, placeOf } from "./document";

/**
 * What was dragged belongs to the group that its middle lies in now, the smallest one where there are several, or to none. Nothing
 * moves on the screen. Groups lie in none.
 */
export function regrouped(document: CanvasDocument, dragged: ReadonlySet<string>): CanvasDocument {
	const groups = document.nodes.filter((node) => node.kind === "group").sort((a, b) => areaOf(a) - areaOf(b));
	let changed = false;
	const nodes = document.nodes.map((node) => {
		if (!dragged.has(node.id) || node.kind === "group") return node;
		// A group takes along what lies in it.
		if (node.group && dragged.has(node.group)) return node;
		const place = placeOf(document, node);
		const group = groups.find((one) => holds(one, middleOf(node, place)));
		if (group?.id === node.group) return node;
		changed = true;
		return { ...node, group: group?.id, x: place.x - (group?.x ?? 0), y: place.y - (group?.y ?? 0) };
	});
	return changed ? { ...document, nodes } : document;
}

type Place = { x: number; y: number };

function middleOf({ width = 0, height = 0 }: CanvasNode, { x, y }: Place): Place {
	return { x: x + width / 2, y: y + height / 2 };
}

function holds({ x, y, width = 0, height = 0 }: CanvasNode, at: Place): boolean {
	return at.x >= x && at.x <= x + width && at.y >= y && at.y <= y + height;
}

function areaOf({ width = 0, height = 0 }: CanvasNode): number {
	return width * height;
}
