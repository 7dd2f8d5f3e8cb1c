/** Does something now and again, for as long as somebody wants it. */

/** Where nobody looks, it is done this many times more seldom. */
const HIDDEN = 4;
const FIRST_PAUSE_MS = 1_000;
const LONGEST_PAUSE_MS = 8_000;

/**
 * Reads at once and then `everyMs` behind each reading; sooner after one that failed. A page that is looked at again does not wait
 * for what was put off while nobody looked. The returned function ends it, with the reading that is under way.
 */
export function keepReading(read: (signal: AbortSignal) => Promise<boolean>, everyMs: number): () => void {
	const abort = new AbortController();
	let timer: ReturnType<typeof setTimeout> | undefined;
	let failures = 0;
	/** When the next reading is due where somebody looks, in milliseconds since the epoch. */
	let due = 0;

	const go = async () => {
		timer = undefined;
		const isRead = await read(abort.signal);
		if (abort.signal.aborted) return;
		failures = isRead ? 0 : failures + 1;
		const pause = isRead ? everyMs : Math.min(FIRST_PAUSE_MS * 2 ** (failures - 1), LONGEST_PAUSE_MS);
		due = Date.now() + pause;
		timer = setTimeout(go, document.hidden ? pause * HIDDEN : pause);
	};
	const onVisible = () => {
		if (document.hidden || timer === undefined) return;
		clearTimeout(timer);
		timer = setTimeout(go, Math.max(0, due - Date.now()));
	};

	document.addEventListener("visibilitychange", onVisible);
	void go();
	return () => {
		abort.abort();
		clearTimeout(timer);
		document.removeEventListener("visibilitychange", onVisible);
	};
}
