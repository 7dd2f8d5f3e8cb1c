/** Where the view goes by itself. In pixels of the screen. Pure. */

type Rect = { left: number; top: number; right: number; bottom: number };

/** What lies below the tools keeps this distance from them. */
const TOP_PX = 56;
/** What is brought into view keeps this distance from its edge. */
const MARGIN_PX = 12;

/** How far a canvas that fits into the view goes up: what an agent does is shown below its task, and needs the place there. */
export function lift(topOfAll: number, zoom: number): number {
	// One that was made smaller to fit needs all of the view.
	return zoom < 1 ? 0 : Math.max(0, topOfAll - TOP_PX);
}

/** How far the view has to move so that the box is in it: not at all where it is, or where it is larger than the view anyway. */
export function intoView(box: Rect, view: Rect): { x: number; y: number } {
	return {
		x: along(box.left, box.right, view.left, view.right),
		y: along(box.top, box.bottom, view.top, view.bottom),
	};
}

function along(from: number, to: number, begin: number, end: number): number {
	const [first, last] = [begin + MARGIN_PX, end - MARGIN_PX];
	if (to - from > last - first) return 0;
	if (from < first) return first - from;
	return to > last ? last - to : 0;
}

/** The part of the canvas that the settings do not cover, where they lie over it. */
export function uncovered(canvas: Rect, settings: Rect | undefined): Rect {
	const beside = !settings || settings.left >= canvas.right || settings.top <= canvas.top;
	return beside ? canvas : { ...canvas, bottom: Math.min(canvas.bottom, settings.top) };
}
