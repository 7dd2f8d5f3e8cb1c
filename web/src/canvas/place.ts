/** Where a node is put that nobody gave a place. Pure. */

import { type CanvasDocument, placeOf } from "./document";

type Box = { x: number; y: number; width: number; height: number };

const STEP_PX = 40;
const GAP_PX = 16;
/** So many steps to the right and down are tried. */
const TRIES = { across: 16, down: 60 };

/** The first place from `at` on, downwards and then to the right, where a node of this size covers no other. */
export function freePlace(
	document: CanvasDocument,
	at: Box,
	sizeOf: (id: string) => { width: number; height: number },
) {
	const taken = document.nodes
		.filter((node) => node.kind !== "group")
		.map((node) => ({ ...placeOf(document, node), ...sizeOf(node.id) }));
	for (let across = 0; across < TRIES.across; across++) {
		for (let down = 0; down < TRIES.down; down++) {
			const box = { ...at, x: at.x + across * STEP_PX, y: at.y + down * STEP_PX };
			if (!taken.some((other) => overlaps(box, other))) return { x: box.x, y: box.y };
		}
	}
	return { x: at.x, y: at.y };
}

function overlaps(a: Box, b: Box): boolean {
	return (
		a.x < b.x + b.width + GAP_PX &&
		b.x < a.x + a.width + GAP_PX &&
		a.y < b.y + b.height + GAP_PX &&
		b.y < a.y + a.height + GAP_PX
	);
}
