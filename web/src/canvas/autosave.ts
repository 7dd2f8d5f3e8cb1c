/** Keeps what is on the screen in the browser, a moment after it changed. */

import { writeSaved } from "./saved";
import { useCanvas } from "./store";

const PAUSE_MS = 300;

function save(): void {
	const { history, runOf: runs, runBefore: before, chains, revisions, say } = useCanvas.getState();
	try {
		writeSaved({ document: history.present, runs, before, chains, revisions });
	} catch {
		say("the browser does not keep this canvas: its storage is full or switched off");
	}
}

/** Begins to keep it; the returned function keeps it a last time and ends. */
export function autosave(): () => void {
	let timer: ReturnType<typeof setTimeout> | undefined;
	const unsubscribe = useCanvas.subscribe((state, before) => {
		const kept = ["history", "runOf", "runBefore", "chains", "revisions"] as const;
		if (kept.every((key) => state[key] === before[key])) return;
		clearTimeout(timer);
		timer = setTimeout(save, PAUSE_MS);
	});
	window.addEventListener("pagehide", save);
	return () => {
		clearTimeout(timer);
		save();
		unsubscribe();
		window.removeEventListener("pagehide", save);
	};
}
