import { expect, test } from "vitest";
import { MemoryStore } from "./memory-store";
import {
	BOUNDS,
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

const drawing = (canvas: string): Saved => ({ canvas, runs: { node: "run_1" }, chains: {} });
let clock = 0;

/** A tab of a browser, with what it shows. */
class Tab {
	private place: Place;
	shows: string | null;

	constructor(
		readonly shelf: Shelf,
		private readonly owner = "",
	) {
		const found = opened(shelf, owner);
		this.place = found?.place ?? newPlace(owner);
		this.shows = found?.saved?.canvas ?? null;
	}

	draws(canvas: string) {
		this.shows = canvas;
		clock += 1;
		const { place, refused } = keep(this.shelf, this.place, drawing(canvas), clock);
		this.place = place;
		return refused;
	}

	reloaded = () => new Tab(this.shelf, this.owner);
	/** The same tab, after somebody else signed in. */
	handedTo = (owner: string) => new Tab(this.shelf, owner);
	duplicated = () => new Tab({ tab: (this.shelf.tab as MemoryStore).copy(), browser: this.shelf.browser }, this.owner);
	others = () => others(this.shelf, this.place).map(({ saved }) => saved?.canvas);
}

const opens = (browser: MemoryStore, owner = "") => new Tab({ tab: new MemoryStore(), browser }, owner);

test("given two tabs that draw in turn, when each is reloaded, then each has its own, and a new one what was kept last", () => {
	const browser = new MemoryStore();
	const first = opens(browser);
	first.draws("a");
	const second = opens(browser);
	expect(second.shows).toBe("a");
	second.draws("b");
	first.draws("a2");
	second.draws("b2");
	expect([first.reloaded().shows, second.reloaded().shows, opens(browser).shows]).toEqual(["a2", "b2", "b2"]);
});

test("given a tab that was closed, when another goes on drawing, then it is offered what the closed one had", () => {
	const browser = new MemoryStore();
	const first = opens(browser);
	first.draws("a");
	const second = opens(browser);
	expect(second.others()).toEqual([]);
	second.draws("b");
	expect(second.others()).toEqual(["a"]);
	expect(second.reloaded().others()).toEqual(["a"]);
});

test("given a tab that only looks, then it takes no place, and a reload brings back what it looked at", () => {
	const browser = new MemoryStore();
	const first = opens(browser);
	first.draws("a");
	const second = opens(browser);
	first.draws("b");
	second.draws("a");
	const again = second.reloaded();
	expect([browser.length, opens(browser).shows, again.shows]).toEqual([1, "b", "a"]);
	again.draws("c");
	expect([opens(browser).shows, first.reloaded().shows]).toEqual(["c", "b"]);
});

test("given a tab that was duplicated, when both draw, then neither writes over the other", () => {
	const browser = new MemoryStore();
	const first = opens(browser);
	first.draws("a");
	const second = first.duplicated();
	second.draws("b");
	first.draws("c");
	second.draws("b2");
	expect([first.reloaded().shows, second.reloaded().shows]).toEqual(["c", "b2"]);
	expect([first.others(), second.others()]).toEqual([["b2"], ["c"]]);
});

test("given more tabs than are kept, then the oldest goes, and comes back by a reload of its own tab", () => {
	const browser = new MemoryStore();
	const first = opens(browser);
	first.draws("first");
	for (let n = 0; n < BOUNDS.tabs; n++) opens(browser).draws(`other ${n}`);
	expect(browser.length).toBe(BOUNDS.tabs);
	expect(opens(browser).others()).not.toContain("first");
	const again = first.reloaded();
	again.draws("first again");
	expect([again.shows, opens(browser).shows]).toEqual(["first again", "first again"]);
});

test("given large canvases, then older ones make room for the newest", () => {
	const browser = new MemoryStore();
	opens(browser).draws("a".repeat(BOUNDS.characters / 2));
	opens(browser).draws("b".repeat(BOUNDS.characters / 2));
	opens(browser).draws("c".repeat(BOUNDS.characters));
	expect([browser.length, opens(browser).shows?.at(0)]).toEqual([1, "c"]);
});

test("given a tab's own storage without room, then that is told, and a reload brings no older canvas back", () => {
	const browser = new MemoryStore();
	const first = new Tab({ tab: new MemoryStore([], 200), browser });
	expect(first.draws("a")).toEqual([]);
	for (const letter of ["b", "c"]) expect(first.draws(letter.repeat(200))).toHaveLength(1);
	expect([browser.length, first.reloaded().shows?.at(0)]).toEqual([1, "c"]);
});

test("given a shared storage without room, then that is told, and a reload still brings back the tab's own", () => {
	const browser = new MemoryStore([], 200);
	const first = opens(browser);
	first.draws("a");
	expect(first.draws("b".repeat(200))).toHaveLength(1);
	expect([first.reloaded().shows?.at(0), opens(browser).shows]).toEqual(["b", "a"]);
	expect([first.draws("c"), browser.length, opens(browser).shows]).toEqual([[], 1, "c"]);
});

test("given the only canvas of a browser from before each tab had a place, then it is opened and left there", () => {
	const browser = new MemoryStore([["riverrun.canvas", JSON.stringify(drawing("old"))]]);
	const first = opens(browser);
	expect(first.shows).toBe("old");
	first.draws("new");
	expect([opens(browser).shows, first.others()]).toEqual(["new", ["old"]]);
});

test.each(["{", "null", '{"canvas":1}'])("given %s in the tab's place, then it is set aside once", (text) => {
	const shelf = {
		tab: new MemoryStore([["riverrun.canvas", text]]),
		browser: new MemoryStore([["riverrun.canvas", text]]),
	};
	expect(opened(shelf, "")).toMatchObject({ text, saved: null });
	setAside(shelf, text);
	expect([opened(shelf, ""), shelf.browser.getItem(SET_ASIDE)]).toEqual([null, text]);
});

test.each([
	["signs in in the same tab", (ann: Tab) => ann.handedTo("bob")],
	["opens a tab of the same browser", (ann: Tab) => opens(ann.shelf.browser as MemoryStore, "bob")],
	["opens one on a server without tokens", (ann: Tab) => opens(ann.shelf.browser as MemoryStore)],
])(
	"given what ann has drawn, when somebody else %s, then nothing of it is shown or offered, and ann has it again",
	(_, other) => {
		const browser = new MemoryStore();
		const ann = opens(browser, "ann");
		ann.draws("of ann");
		const bob = other(ann);
		expect([bob.shows, bob.others()]).toEqual([null, []]);
		bob.draws("of bob");
		expect([bob.reloaded().shows, bob.others()]).toEqual(["of bob", []]);
		expect([opens(browser, "ann").shows, opens(browser, "ann").others()]).toEqual(["of ann", []]);
	},
);

test("given canvases of several people in several tabs, when one is forgotten, then all of theirs goes, and no other", () => {
	const browser = new MemoryStore();
	const [first, second, bob] = [opens(browser, "ann"), opens(browser, "ann"), opens(browser, "bob")];
	first.draws("a");
	second.draws("b");
	bob.draws("c");
	const before = { tab: new MemoryStore(), browser };
	expect(drawnBy(first.shelf, "ann").map(({ canvas }) => canvas)).toEqual(["a", "b"]);
	setAside(before, JSON.stringify({ canvas: "can't be read", owner: "ann" }));
	forget(first.shelf, "ann");
	expect([drawnBy(first.shelf, "ann"), first.reloaded().shows]).toEqual([[], null]);
	expect([browser.getItem(SET_ASIDE), browser.length]).toEqual([null, 1]);
	expect(opens(browser, "bob").shows).toBe("c");
	setAside(before, JSON.stringify({ canvas: "can't be read", owner: "bob" }));
	forget(first.shelf, "ann");
	expect(browser.getItem(SET_ASIDE)).toContain("bob");
});

test("given what was kept before canvases had owners, then it is of servers without tokens", () => {
	const text = JSON.stringify({ ...drawing("old"), tab: "t", at: 1 });
	const browser = new MemoryStore([["riverrun.canvas.tab.t", text]]);
	expect([opens(browser, "ann").shows, opens(browser).shows]).toEqual([null, "old"]);
});
