/** What somebody would lose by signing out, and how it goes to the server before. */

import type { CanvasDocument } from "./document";
import { sharedCanvas } from "./exchange";
import { drawn, idFrom, isOvertaken, keyOf, look, save, saveCopy } from "./kept";
import { named } from "./names";
import { sheetOf } from "./ran";
import { type Reopened, savedBy } from "./saved";
import { useCanvas } from "./store";

/** What only this browser has of somebody. `unreadable` counts what it keeps and can't read back. */
export type Unsaved = { canvases: Reopened[]; unreadable: number };

/** The id of a canvas without a name that has letters or digits. */
const NAMELESS = "canvas";

/** What of the owner's canvases, in whatever tab, the server does not have as it is here. */
export async function unsavedBy(owner: string): Promise<Unsaved> {
	const here = onScreen(owner);
	const { canvases, unreadable } = savedBy(owner, here.length > 0);
	const seen = new Set<string>();
	const all = [...here, ...canvases].filter(({ document }) => {
		const text = drawing(document);
		const isNew = document.nodes.length > 0 && !seen.has(text);
		seen.add(text);
		return isNew;
	});
	const there = await Promise.all(all.map(isOnServer));
	return { canvases: all.filter((_, at) => !there[at]), unreadable };
}

/** Saves a canvas where it is kept, or else as a new one; beside what somebody else has saved there meanwhile. */
export async function saveUnder({ document, revisions }: Reopened): Promise<void> {
	const id = document.kept ?? (idFrom(document.name) || NAMELESS);
	const revision = document.kept === undefined ? 0 : (revisions[keyOf(document.namespace, id)] ?? 0);
	const entry = await save(document, id, revision).catch((error) => {
		if (isOvertaken(error)) return saveCopy(document, id);
		throw error;
	});
	// Whoever stays after all goes on with what is saved now.
	const { history, keptAs } = useCanvas.getState();
	if (history.present === document) keptAs(entry);
}

/**
 * The canvas on the screen, or that the page would show again, which may be newer than what the browser keeps; behind it those whose
 * place it took, which only undo and redo still lead to. None where somebody else's is there.
 */
function onScreen(whose: string): Reopened[] {
	const { owner, history, runOf, runBefore, chains, revisions } = useCanvas.getState();
	if (owner !== whose) return [];
	const { past, present, future } = history;
	const sheets = new Map([...past, ...future].map((document) => [sheetOf(document), document]));
	sheets.delete(sheetOf(present));
	const rest = [...sheets.values()].map((document) => ({ document, runs: {}, before: {}, chains: {}, revisions }));
	return [{ document: present, runs: runOf, before: runBefore, chains, revisions }, ...rest];
}

async function isOnServer({ document }: Reopened): Promise<boolean> {
	const { namespace, kept } = document;
	if (kept === undefined) return false;
	try {
		const view = await look(namespace, kept);
		return view !== null && drawing(named(drawn(view))) === drawing(document);
	} catch {
		// Who can't be asked does not have it, as far as is known.
		return false;
	}
}

/** What somebody has drawn, whatever the order of its keys; without the sizes that nodes took of themselves when they were shown. */
function drawing(document: CanvasDocument): string {
	const nodes = document.nodes.map((node) =>
		node.kind === "group" ? node : { ...node, width: undefined, height: undefined },
	);
	return JSON.stringify(JSON.parse(sharedCanvas({ ...document, nodes }).text), inOrder);
}

function inOrder(_: string, value: unknown): unknown {
	if (typeof value !== "object" || value === null || Array.isArray(value)) return value;
	return Object.fromEntries(Object.entries(value).sort(([one], [other]) => (one < other ? -1 : 1)));
}
