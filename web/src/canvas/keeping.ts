"use client";

/** What the page asks while a canvas goes to the server or comes from there. */

import { create } from "zustand";
import { type CanvasEntry, describe } from "@/api/client";
import { leftOut, sharedCanvas } from "./exchange";
import { copyName, drawn, isOvertaken, keyOf, look, overwrite, save, saveCopy } from "./kept";
import { useCanvas } from "./store";

/** `overtaken`: somebody else has saved the canvas of that id. */
type Question = { kind: "id" } | { kind: "open" } | { kind: "overtaken"; id: string };

type KeepingState = {
	question: Question | null;
	/** Why the last try came to nothing. */
	problem: string | null;
	busy: boolean;

	ask: (question: Question | null) => void;
	/** Saves the next revision; asks under which id where the server has none of it. */
	save: () => Promise<void>;
	saveAs: (id: string) => Promise<void>;
	overwrite: (id: string) => Promise<void>;
	/** Keeps what is on the screen beside what somebody else saved. */
	saveCopy: (id: string) => Promise<void>;
	open: (namespace: string, id: string) => Promise<void>;
};

export const useKeeping = create<KeepingState>((set, get) => {
	const canvas = useCanvas.getState;
	const present = () => canvas().history.present;
	/** One at a time. What it can't do is said in the dialog that asked for it, or else as a notice. */
	const attempt = async (work: () => Promise<void>, id?: string) => {
		if (get().busy) return;
		set({ busy: true, problem: null });
		try {
			await work();
			set({ question: null });
		} catch (error) {
			if (id !== undefined && isOvertaken(error)) {
				// The dialog has the ways out of it.
				set({ question: { kind: "overtaken", id }, problem: error.message });
			} else if (get().question) set({ problem: describe(error) });
			else canvas().say(`not saved: ${describe(error)}`);
		} finally {
			set({ busy: false });
		}
	};
	const saved = (entry: CanvasEntry) => {
		canvas().keptAs(entry);
		const keys = leftOut(sharedCanvas(present()).keys);
		canvas().say(`the server keeps it as ${entry.canvas_id}, revision ${entry.revision}${keys}`);
	};

	return {
		question: null,
		problem: null,
		busy: false,

		ask: (question) => set({ question, problem: null }),

		async save() {
			if (get().question) return;
			const document = present();
			const { kept, namespace } = document;
			if (kept === undefined) {
				get().ask({ kind: "id" });
				return;
			}
			const revision = canvas().revisions[keyOf(namespace, kept)] ?? 0;
			await attempt(async () => saved(await save(document, kept, revision)), kept);
		},

		saveAs: (id) => attempt(async () => saved(await save(present(), id, 0)), id),

		overwrite: (id) => attempt(async () => saved(await overwrite(present(), id)), id),

		saveCopy: (id) =>
			attempt(async () => {
				const name = copyName(present().name);
				const entry = await saveCopy({ ...present(), name }, id);
				canvas().edit((now) => ({ ...now, name }));
				saved(entry);
			}),

		open: (namespace, id) =>
			attempt(async () => {
				const view = await look(namespace, id);
				if (!view) throw new Error(`${id} is gone: somebody has removed it`);
				canvas().replace(drawn(view));
				canvas().keptAs(view);
				canvas().say("opened: undo brings back what was here");
			}),
	};
});
