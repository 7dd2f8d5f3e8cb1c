/** Undo and redo over immutable values. Pure. */

export type History<T> = { past: T[]; present: T; future: T[] };

/** Older states than this are forgotten. */
export const MAX_HISTORY = 200;

export function begin<T>(present: T): History<T> {
	return { past: [], present, future: [] };
}

export function record<T>(history: History<T>, next: T): History<T> {
	if (next === history.present) return history;
	return { past: [...history.past, history.present].slice(-MAX_HISTORY), present: next, future: [] };
}

/** Changes the present without a step of its own: while something is dragged or typed. */
export function amend<T>(history: History<T>, next: T): History<T> {
	return { ...history, present: next };
}

/** Changes of one thing that follow each other this fast are one step: what is typed into a node, or moved by keys. */
const BURST_MS = 1_000;

/** The last of such changes. `past` is what lay before it: another one means that a step came between, or an undo. */
export type Burst<T> = { of: string; at: number; past: readonly T[] };

/** Records a change of the thing `of`, in the step of the burst that it goes on with, if it does. */
export function recordBurst<T>(
	history: History<T>,
	next: T,
	of: string,
	now: number,
	last: Burst<T> | null,
): { history: History<T>; burst: Burst<T> } {
	const goesOn = last?.of === of && last.past === history.past && now - last.at < BURST_MS;
	const changed = goesOn ? amend(history, next) : record(history, next);
	return { history: changed, burst: { of, at: now, past: changed.past } };
}

export function undo<T>(history: History<T>): History<T> {
	const before = history.past.at(-1);
	if (before === undefined) return history;
	return { past: history.past.slice(0, -1), present: before, future: [history.present, ...history.future] };
}

export function redo<T>(history: History<T>): History<T> {
	const [next, ...future] = history.future;
	if (next === undefined) return history;
	return { past: [...history.past, history.present], present: next, future };
}
