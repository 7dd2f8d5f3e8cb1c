/** What the browser keeps of the canvas on the screen, and what it gives back. */

import { describe } from "@/api/client";
import type { CanvasDocument } from "./document";
import { exportCanvas, importCanvas } from "./exchange";
import { keyOf } from "./kept";
import {
	drawnBy,
	forget,
	keep,
	newPlace,
	opened,
	others,
	type Place,
	type Saved,
	SET_ASIDE,
	type Shelf,
	setAside,
} from "./tabs";

/** A canvas with its runs, as it was kept. */
export type Reopened = {
	document: CanvasDocument;
	runs: Record<string, string>;
	/** Node → the run before its latest one. */
	before: Record<string, string>;
	chains: Record<string, string>;
	revisions: Record<string, number>;
};

let place: Place | null = null;
/** The name of the token of whoever draws here; empty where the server asks for none. */
let owner = "";
/** Whoever drew here has signed out: what is still on the screen for a moment is kept no more. */
let isLeft = false;

/** Made anew each time: where storage is switched off, asking for it throws. */
const shelf = (): Shelf => ({ tab: sessionStorage, browser: localStorage });

/** The canvas that this tab begins with for its owner; says what could not be read and where it is now. */
export function readSaved(whose: string, say: (why: string) => void): Reopened | null {
	let text: string | null = null;
	owner = whose;
	try {
		const found = opened(shelf(), owner);
		if (!found) return null;
		text = found.text;
		if (!found.saved) throw new Error("it is not JSON of a canvas");
		const reopened = reopen(found.saved);
		place = found.place;
		return reopened;
	} catch (error) {
		if (text !== null)
			say(`the canvas that this browser kept can't be read (${describe(error)}); ${outOfTheWay(text)}`);
		return null;
	}
}

/** Keeps it; throws when there is no room, or no storage. */
export function writeSaved({ document, runs, before, chains, revisions }: Reopened): void {
	if (isLeft) return;
	const { namespace, kept: id } = document;
	const kept = id === undefined ? undefined : { id, revision: revisions[keyOf(namespace, id)] ?? 0 };
	const saved = { canvas: exportCanvas(document), runs, before: someOf(before), chains, kept };
	const done = keep(shelf(), place ?? newPlace(owner), saved, Date.now());
	place = done.place;
	if (done.refused.length > 0) throw done.refused[0];
}

/** The canvases that other tabs of this browser have kept, newest first, with when. What can't be read is left out. */
export function ofOtherTabs(): { key: string; at: number; canvas: Reopened }[] {
	try {
		return others(shelf(), place ?? newPlace(owner)).flatMap(({ key, at, saved }) => {
			try {
				return saved ? [{ key, at, canvas: reopen(saved) }] : [];
			} catch {
				return [];
			}
		});
	} catch {
		// The browser's storage is switched off.
		return [];
	}
}

/** All that this browser keeps of somebody. What this tab has on its screen is left out where `butThis` says so. */
export function savedBy(whose: string, butThis: boolean): { canvases: Reopened[]; unreadable: number } {
	const canvases: Reopened[] = [];
	let unreadable = 0;
	try {
		for (const entry of drawnBy(shelf(), whose, butThis ? place?.tab : undefined)) {
			try {
				canvases.push(reopen(entry));
			} catch {
				unreadable += 1;
			}
		}
	} catch {
		// The browser's storage is switched off: it keeps nothing.
	}
	return { canvases, unreadable };
}

/** Lets go of all that this browser keeps of somebody, and keeps nothing more until the page is loaded anew. */
export function forgetSaved(whose: string): void {
	isLeft = true;
	try {
		forget(shelf(), whose);
	} catch {
		// The browser's storage is switched off: it keeps nothing.
	}
}

function reopen({ canvas, runs, before = {}, chains, kept }: Saved): Reopened {
	const document = importCanvas(canvas);
	if (!kept) return { document, runs, before, chains, revisions: {} };
	const revisions = { [keyOf(document.namespace, kept.id)]: kept.revision };
	return { document: { ...document, kept: kept.id }, runs, before, chains, revisions };
}

/** Nothing is kept as nothing: what was kept before there was such a thing is then not taken for another canvas. */
function someOf(runs: Record<string, string>): Record<string, string> | undefined {
	return Object.keys(runs).length > 0 ? runs : undefined;
}

/** What is drawn from now on would be kept in the place of this text. Says where it is. */
function outOfTheWay(text: string): string {
	try {
		setAside(shelf(), text);
		return `its text is kept as ${SET_ASIDE}`;
	} catch {
		return "the browser's storage has no room to set it aside, and the next change takes its place";
	}
}
