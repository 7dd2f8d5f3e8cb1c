/** Keeps what is on the screen in the browser, a moment after it changed. */

import { writeSaved } from "./saved";
import { useCanvas } from "./store";

const PAUSE_MS = 300;

/** Begins to keep it; the returned function keeps it a last time and ends. */
export function autosave(): () => void {
	let timer: ReturnType<typeof setTimeout> | undefined;
	const save = () => {
		const { history, runOf: runs, chains, revisions, say } = useCanvas.getState();
		try {
			writeSaved({ document: history.present, runs, chains, revisions });
		} catch {
			say("the browser does not keep this canvas: its storage is full or switched off");
		}
	};
	const unsubscribe = useCanvas.subscribe((state, before) => {
		const same = (key: "history" | "runOf" | "chains" | "revisions") => state[key] === before[key];
		if (same("history") && same("runOf") && same("chains") && same("revisions")) return;
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
