/** Which runs belong to which canvas. A canvas that another one takes the place of keeps its runs, and undo brings them back with it. Pure. */

import type { CanvasDocument } from "./document";

/** What was run on a canvas. */
export type Ran = {
	/** Node → its latest run. */
	runOf: Record<string, string>;
	/** Node → the run before its latest one, to compare it with. */
	runBefore: Record<string, string>;
	/** Last node of a chain whose start the server has not confirmed yet → its key: after a reload it is asked for again. */
	chains: Record<string, string>;
	/** Node → why its run could not be started. */
	problems: Record<string, string>;
};

/** Sheet → what was run on it, of canvases that are not on the screen. */
export type Aside = Record<number, Ran>;

export const NOTHING_RAN: Ran = { runOf: {}, runBefore: {}, chains: {}, problems: {} };

/** Ids of nodes come back in another canvas (templates, a file that is imported twice): its sheet tells it from others. */
export function sheetOf(document: CanvasDocument): number {
	return document.sheet ?? 0;
}

export function begun(ran: Ran, node: string, chain: string): Ran {
	return { ...ran, chains: { ...ran.chains, [node]: chain }, problems: omit(ran.problems, node) };
}

/** The server has confirmed the start, or refused it. */
export function settled(ran: Ran, node: string): Ran {
	return { ...ran, chains: omit(ran.chains, node) };
}

export function refused(ran: Ran, node: string, why: string): Ran {
	return { ...ran, problems: { ...ran.problems, [node]: why } };
}

export function adopted(ran: Ran, node: string, runId: string): Ran {
	const before = ran.runOf[node];
	return {
		...ran,
		runOf: { ...ran.runOf, [node]: runId },
		runBefore: before && before !== runId ? { ...ran.runBefore, [node]: before } : ran.runBefore,
		problems: omit(ran.problems, node),
	};
}

function omit<T>(record: Record<string, T>, key: string): Record<string, T> {
	const { [key]: _, ...rest } = record;
	return rest;
}
