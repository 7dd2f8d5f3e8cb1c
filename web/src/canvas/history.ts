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
