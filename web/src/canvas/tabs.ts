/**
 * The canvases of a browser's tabs. A tab's own storage brings its canvas back after a reload; a place in the storage that
 * all tabs share keeps it for new tabs, and beyond the tab's end. No tab writes into the place of another, and nobody is shown
 * what somebody else has drawn in the same browser.
 */

/** The canvas in a tab's own storage; also where the shared storage had the only one before each tab had a place. */
const OWN = "riverrun.canvas";
const PLACE = "riverrun.canvas.tab.";
/** What could not be read back: nothing writes over it but the next such canvas. */
export const SET_ASIDE = "riverrun.canvas.set-aside";

/** The shared storage keeps so many of the newest canvases, and so many characters of them; the newest one always. */
export const BOUNDS = { tabs: 8, characters: 2 << 20 } as const;

/** `canvas` is in the exchange format: what is read back is checked like any import. */
export type Saved = {
	canvas: string;
	runs: Record<string, string>;
	/** Node → the run before its latest one; left out where there is none. */
	before?: Record<string, string>;
	chains: Record<string, string>;
	/** Where the server keeps it, and the revision that was seen last. */
	kept?: { id: string; revision: number };
};

/**
 * As it lies in a storage: with the tab that wrote it, and when, in milliseconds since the epoch, and the name of the token of
 * whoever drew it, which is empty where the server asks for none.
 */
export type Entry = Saved & { tab: string; at: number; owner: string };

export type Store = Pick<Storage, "getItem" | "setItem" | "removeItem" | "key" | "length">;
/** A tab's own storage, and that of the whole browser. */
export type Shelf = { tab: Store; browser: Store };

/** Where a tab writes. */
export type Place = {
	tab: string;
	/** What it wrote there last, to see whether another tab has written since. */
	written: string | null;
	/** What it kept last, to write only what has changed. */
	content: string | null;
	/** Who draws in it. */
	owner: string;
};

/** What the shared storage has of a tab. */
export type Found = { key: string; at: number; text: string; saved: Entry | null };

/** The place of a tab that has kept nothing yet. */
export function newPlace(owner: string): Place {
	return { tab: crypto.randomUUID(), written: null, content: null, owner };
}

/**
 * The canvas that a tab opens with: its own after a reload, else the one that its owner has kept last. Null when there is none.
 * What can't be read tells nobody whose it is, and is nobody's to see either: it is given as the text that is to be set aside.
 */
export function opened(shelf: Shelf, owner: string): { place: Place; text: string; saved: Saved | null } | null {
	const own = shelf.tab.getItem(OWN);
	const entry = own === null ? null : read(own);
	if (own !== null && !entry) return { place: newPlace(owner), text: own, saved: null };
	if (own !== null && entry?.owner === owner) {
		const place = { tab: entry.tab || newPlace(owner).tab, written: own, content: contentOf(entry), owner };
		return { place, text: own, saved: entry };
	}
	const last = found(shelf.browser).find(({ saved }) => !saved || saved.owner === owner);
	if (!last) return null;
	if (!last.saved) return { place: newPlace(owner), text: last.text, saved: null };
	return { place: begun(shelf.tab, last.saved, owner), text: last.text, saved: last.saved };
}

/**
 * Another tab may be drawing on what this one begins with: it is this tab's own from now on, and takes a place of its own in
 * the shared storage as soon as something changes.
 */
function begun(tab: Store, saved: Saved, owner: string): Place {
	const place = { ...newPlace(owner), content: contentOf(saved) };
	try {
		tab.setItem(OWN, written(saved, place, 0));
	} catch {
		// A reload before the first change opens the newest one then.
	}
	return place;
}

/**
 * Keeps a canvas that has changed, in both storages, and gives the place where it lies now, with what a storage throws that
 * has no room. A place in which another tab has written meanwhile, as a duplicate of this one does, is left to that tab.
 */
export function keep(shelf: Shelf, place: Place, saved: Saved, at: number): { place: Place; refused: unknown[] } {
	const content = contentOf(saved);
	if (content === place.content) return { place, refused: [] };
	const there = shelf.browser.getItem(PLACE + place.tab);
	const { owner } = place;
	const tab = there === null || there === place.written ? place.tab : newPlace(owner).tab;
	const text = written(saved, { tab, owner }, at);
	const own = attempt(() => writeOwn(shelf.tab, text));
	const shared = attempt(() => writeShared(shelf.browser, tab, text));
	const refused = [...own, ...shared];
	// What was refused is tried again with the next change, or when the tab is left.
	return {
		place: { tab, written: shared.length > 0 ? there : text, content: refused.length > 0 ? null : content, owner },
		refused,
	};
}

function attempt(write: () => void): unknown[] {
	try {
		write();
		return [];
	} catch (error) {
		return [error];
	}
}

/** What the owner's other tabs have kept, open ones and closed ones, newest first; not those that are as this one is. */
export function others(shelf: Shelf, place: Place): Found[] {
	return found(shelf.browser).filter(
		({ key, saved }) => key !== PLACE + place.tab && saved?.owner === place.owner && contentOf(saved) !== place.content,
	);
}

/** All that somebody has drawn in this browser, in any tab, each once; without what lies in the place of the tab `but`. */
export function drawnBy({ tab, browser }: Shelf, owner: string, but?: string): Entry[] {
	const own = read(tab.getItem(OWN) ?? "");
	const all = [own, ...found(browser).map(({ saved }) => saved)];
	const theirs = all.filter((one): one is Entry => one?.owner === owner && one.tab !== but);
	return [...new Map(theirs.map((one) => [one.canvas, one])).values()];
}

/** Lets go of all that somebody has drawn in this browser, also of what was set aside. What others have drawn stays. */
export function forget({ tab, browser }: Shelf, owner: string): void {
	const isTheirs = (text: string | null) => text !== null && read(text)?.owner === owner;
	for (const { key, text } of found(browser)) if (isTheirs(text)) browser.removeItem(key);
	if (isTheirs(browser.getItem(SET_ASIDE))) browser.removeItem(SET_ASIDE);
	if (isTheirs(tab.getItem(OWN))) tab.removeItem(OWN);
}

/** Takes a text that can't be read out of the way of whatever is drawn next. Throws when there is no room to set it aside. */
export function setAside({ tab, browser }: Shelf, text: string): void {
	browser.setItem(SET_ASIDE, text);
	for (const { key, text: same } of found(browser)) if (same === text) browser.removeItem(key);
	if (tab.getItem(OWN) === text) tab.removeItem(OWN);
}

/** An older canvas would come back by a reload where the new one has no room: then rather none of the tab's own. */
function writeOwn(tab: Store, text: string): void {
	try {
		tab.setItem(OWN, text);
	} catch (error) {
		tab.removeItem(OWN);
		throw error;
	}
}

function writeShared(browser: Store, tab: string, text: string): void {
	const key = PLACE + tab;
	const rest = found(browser).filter((one) => one.key !== key);
	for (const one of surplus(rest, text.length)) browser.removeItem(one.key);
	browser.setItem(key, text);
}

/** Those of the newest first that are too many beside one of so many characters. */
function surplus(rest: Found[], characters: number): Found[] {
	let sum = characters;
	return rest.filter(({ text }, at) => {
		sum += text.length;
		return at >= BOUNDS.tabs - 1 || sum > BOUNDS.characters;
	});
}

function found(browser: Store): Found[] {
	const keys = Array.from({ length: browser.length }, (_, at) => browser.key(at) ?? "");
	return keys
		.filter((key) => key === OWN || key.startsWith(PLACE))
		.map((key) => {
			const text = browser.getItem(key) ?? "";
			const saved = read(text);
			return { key, at: saved?.at ?? 0, text, saved };
		})
		.sort((a, b) => b.at - a.at);
}

function read(text: string): Entry | null {
	try {
		const entry = JSON.parse(text) as Partial<Entry> | null;
		if (typeof entry?.canvas !== "string") return null;
		const { canvas, runs = {}, before, chains = {}, kept, tab = "", at = 0, owner = "" } = entry;
		return { canvas, runs, before, chains, kept, tab, at, owner };
	} catch {
		return null;
	}
}

function written(
	{ canvas, runs, before, chains, kept }: Saved,
	{ tab, owner }: Pick<Place, "tab" | "owner">,
	at: number,
): string {
	return JSON.stringify({ canvas, runs, before, chains, kept, tab, at, owner } satisfies Entry);
}

function contentOf({ canvas, runs, before, chains, kept }: Saved): string {
	return JSON.stringify({ canvas, runs, before, chains, kept });
}
