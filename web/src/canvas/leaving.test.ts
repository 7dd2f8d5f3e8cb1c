import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { type CanvasDocument, emptyCanvas } from "./document";
import { exportCanvas, sharedCanvas } from "./exchange";
import { begin } from "./history";
import { saveUnder, unsavedBy } from "./leaving";
import { MemoryStore } from "./memory-store";
import { forgetSaved, type Reopened, writeSaved } from "./saved";
import { useCanvas } from "./store";

const note = (text: string) => ({ id: "n", kind: "note" as const, x: 0, y: 0, data: { text } });
const canvas = (name: string, more: Partial<CanvasDocument> = {}): CanvasDocument => ({
	...emptyCanvas(),
	name,
	nodes: [note(name)],
	...more,
});
const kept = (document: CanvasDocument, owner: string) =>
	JSON.stringify({ canvas: exportCanvas(document), runs: {}, chains: {}, tab: document.name, at: 1, owner });
const reopened = (document: CanvasDocument): Reopened => ({
	document,
	runs: {},
	before: {},
	chains: {},
	revisions: { "default/plan": 3 },
});

/** A server that has these canvases, and what was saved to it. */
function serving(there: Record<string, CanvasDocument>) {
	const saved: { path: string; revision: number }[] = [];
	vi.stubGlobal("fetch", async (address: string, { method, body }: { method: string; body?: string }) => {
		const id = decodeURIComponent(address.replace(/^.*\/canvases\//, "").replace(/\?.*$/, ""));
		const found = there[id];
		if (method === "PUT") {
			const { revision } = JSON.parse(body ?? "{}") as { revision: number };
			const isOvertaken = (found ? 7 : 0) !== revision;
			if (isOvertaken) {
				const problem = { status: 409, code: "canvas_overtaken", title: "", detail: "another one is there" };
				return Response.json(problem, { status: 409 });
			}
			saved.push({ path: id, revision });
			return Response.json({ canvas_id: id, namespace: "default", revision: revision + 1 });
		}
		if (!found) return Response.json({ status: 404, code: "canvas_not_found", title: "", detail: "" }, { status: 404 });
		// As a server gives it: the keys in another order.
		const document = JSON.parse(sharedCanvas(found).text, (_, value) =>
			value && typeof value === "object" && !Array.isArray(value)
				? Object.fromEntries(Object.entries(value).reverse())
				: value,
		);
		return Response.json({ canvas_id: id, namespace: "default", revision: 7, document });
	});
	return saved;
}

const names = async (owner: string) => {
	const { canvases, unreadable } = await unsavedBy(owner);
	return [...canvases.map(({ document }) => document.name), unreadable];
};

beforeEach(() => {
	vi.stubGlobal("sessionStorage", new MemoryStore());
	vi.stubGlobal("localStorage", new MemoryStore());
});
afterEach(() => {
	vi.unstubAllGlobals();
	useCanvas.setState({ history: begin(emptyCanvas()), owner: null });
});

test("given canvases of several people and an empty one, then only those are asked about that leave with whoever signs out", async () => {
	serving({});
	localStorage.setItem("riverrun.canvas.tab.1", kept(canvas("of ann"), "ann"));
	localStorage.setItem("riverrun.canvas.tab.2", kept(canvas("of bob"), "bob"));
	localStorage.setItem("riverrun.canvas.tab.3", kept({ ...emptyCanvas(), name: "empty" }, "ann"));
	localStorage.setItem("riverrun.canvas.tab.4", JSON.stringify({ canvas: "{}", owner: "ann", tab: "4", at: 1 }));
	expect(await names("ann")).toEqual(["of ann", 1]);
	expect(await names("bob")).toEqual(["of bob", 0]);
});

test("given the canvas on the screen, then it counts as it is there, once, and only for its owner", async () => {
	serving({});
	useCanvas.setState({ history: begin(canvas("drawn")), owner: "ann" });
	localStorage.setItem("riverrun.canvas.tab.1", kept(canvas("drawn"), "ann"));
	expect([await names("ann"), await names("bob")]).toEqual([["drawn", 0], [0]]);
});

test("given canvases that another one took the place of, then each is asked about as it was last, once", async () => {
	serving({});
	const { replace, edit } = useCanvas.getState();
	useCanvas.setState({ history: begin(canvas("first")), owner: "ann" });
	edit((now) => ({ ...now, name: "first, changed" }));
	replace(canvas("second"));
	replace(emptyCanvas());
	expect(await names("ann")).toEqual(["first, changed", "second", 0]);
	useCanvas.getState().undo();
	expect(await names("ann")).toEqual(["second", "first, changed", 0]);
});

test.each<[string, Partial<CanvasDocument>, string[]]>([
	["as it is saved", {}, []],
	["shown since, which gave its nodes a size", { nodes: [{ ...note("plan"), width: 198, height: 124 }] }, []],
	["changed since", { nodes: [note("other words")] }, ["plan"]],
	["kept under an id that somebody has removed", { kept: "gone" }, ["plan"]],
])("given a canvas that the server keeps, %s, then it is asked about: %j", async (_, change, asked) => {
	serving({ plan: canvas("plan") });
	useCanvas.setState({ history: begin(canvas("plan", { kept: "plan", ...change })), owner: "ann" });
	expect(await names("ann")).toEqual([...asked, 0]);
});

test("given a server that does not answer, then all is asked about", async () => {
	vi.stubGlobal("fetch", () => Promise.reject(new TypeError("no connection")));
	useCanvas.setState({ history: begin(canvas("plan", { kept: "plan" })), owner: "ann" });
	expect(await names("ann")).toEqual(["plan", 0]);
});

test("given canvases that are saved before somebody leaves, then none is saved over another one", async () => {
	const saved = serving({ plan: canvas("theirs") });
	const here = canvas("On the screen");
	useCanvas.setState({ history: begin(here), owner: "ann" });
	await saveUnder(reopened(here));
	expect(useCanvas.getState().history.present.kept).toBe("on-the-screen");
	await saveUnder(reopened(canvas("A new one")));
	await saveUnder(reopened(canvas("?!")));
	await saveUnder(reopened(canvas("mine", { kept: "plan" })));
	await saveUnder({ ...reopened(canvas("mine", { kept: "plan" })), revisions: { "default/plan": 7 } });
	expect(saved).toEqual([
		{ path: "on-the-screen", revision: 0 },
		{ path: "a-new-one", revision: 0 },
		{ path: "canvas", revision: 0 },
		{ path: "plan-2", revision: 0 },
		{ path: "plan", revision: 7 },
	]);
});

// The last one: whoever has left is kept no more for as long as the page lives.
test("given somebody who signs out, then nothing of them is in the browser, and nothing is kept of what is still on the screen", () => {
	localStorage.setItem("riverrun.canvas.tab.1", kept(canvas("of ann"), "ann"));
	localStorage.setItem("riverrun.canvas.tab.2", kept(canvas("of bob"), "bob"));
	sessionStorage.setItem("riverrun.canvas", kept(canvas("here"), "ann"));
	forgetSaved("ann");
	writeSaved(reopened(canvas("still here")));
	expect([localStorage.length, sessionStorage.length]).toEqual([1, 0]);
	expect(localStorage.getItem("riverrun.canvas.tab.2")).toContain("of bob");
});
