import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import { useRuns } from "@/runs/store";
import { type CanvasNode, emptyCanvas } from "./document";
import { begin } from "./history";
import { MemoryStore } from "./memory-store";
import { movesOf, placed } from "./moves";
import { readSaved, writeSaved } from "./saved";
import { useCanvas } from "./store";

afterEach(() => {
	vi.unstubAllGlobals();
	vi.useRealTimers();
});

test("given a fork that the server refuses, then its node says why and keeps its run", async () => {
	const refused = { status: 422, code: "invalid", title: "Invalid", detail: "a call is under way", hint: "at_seq 1" };
	vi.stubGlobal("fetch", async () => Response.json(refused, { status: 422 }));
	useCanvas.getState().adopt("node", "run_1");
	await useCanvas.getState().fork("node", 2);
	expect(useCanvas.getState().problems.node).toBe("a call is under way. at_seq 1");
	expect(useCanvas.getState().runOf.node).toBe("run_1");
});

test("given a kept canvas that can't be read back, then its text is set aside and the page says so", async () => {
	const kept = JSON.stringify({ canvas: "{}", runs: {}, chains: {} });
	const browser = new MemoryStore([["riverrun.canvas", kept]]);
	vi.stubGlobal("localStorage", browser);
	vi.stubGlobal("sessionStorage", new MemoryStore());
	useCanvas.getState().load();
	expect([browser.getItem("riverrun.canvas.set-aside"), browser.getItem("riverrun.canvas")]).toEqual([kept, null]);
	expect(useCanvas.getState().notice).toContain("can't be read");
	expect(useCanvas.getState().history.present.nodes).toEqual([]);
});

test("given more connections than a canvas has, when they are pasted, then nothing is pasted and the page says why", () => {
	const edges = Array.from({ length: 8_001 }, (_, n) => ({ id: `e${n}`, from: "a", to: "b" }));
	useCanvas.setState({ clipboard: { nodes: [], edges } });
	useCanvas.getState().paste();
	expect(useCanvas.getState().history.present.edges).toEqual([]);
	expect(useCanvas.getState().notice).toBe("a canvas has at most 8000 connections");
});

describe("given a node that is moved by keys", () => {
	const canvas = useCanvas.getState;
	const places = () => canvas().history.present.nodes.map(({ x }) => x);
	/** As React Flow tells of a press. */
	const press = (id: string, x: number) => {
		const moves = movesOf([{ type: "position", id, position: { x, y: 0 }, dragging: false }]);
		canvas().nudge(`places of ${id}`, (now) => placed(now, moves));
	};
	const node = (id: string): CanvasNode => ({ id, kind: "note", x: 0, y: 0, data: { text: "" } });
	beforeEach(() => {
		vi.useFakeTimers();
		useCanvas.setState({ history: begin({ ...emptyCanvas(), nodes: [node("a"), node("b")] }) });
	});

	test("when it is undone, then a burst of presses is one step, which redo brings back", () => {
		for (const x of [5, 10, 15]) press("a", x);
		expect(places()).toEqual([15, 0]);
		canvas().undo();
		expect([places(), canvas().history.past]).toEqual([[0, 0], []]);
		canvas().redo();
		expect(places()).toEqual([15, 0]);
	});

	test("when presses are long apart, or of another node, then each is a step", () => {
		press("a", 5);
		vi.advanceTimersByTime(60_000);
		press("a", 10);
		press("b", 5);
		canvas().undo();
		expect(places()).toEqual([10, 0]);
		canvas().undo();
		expect(places()).toEqual([5, 0]);
	});

	test("when something else comes between, then the next press is a step of its own", () => {
		press("a", 5);
		canvas().edit((now) => ({ ...now, name: "named" }));
		press("a", 10);
		canvas().undo();
		expect([places(), canvas().history.present.name]).toEqual([[5, 0], "named"]);
		canvas().undo();
		press("a", 20);
		expect([places(), canvas().history.future]).toEqual([[20, 0], []]);
	});
});

test.each([
	[true, false],
	[false, true],
])("given a move whose dragging is %s, then it ends its drag: %s", (dragging, ends) => {
	expect(movesOf([{ type: "position", id: "a", position: { x: 1, y: 2 }, dragging }]).ends).toBe(ends);
	expect(movesOf([{ type: "dimensions", id: "a", dimensions: { width: 1, height: 2 } }]).ends).toBe(false);
});

describe("given a canvas with runs, when another one takes its place", () => {
	const canvas = useCanvas.getState;
	const shown = () => [canvas().history.present.name, canvas().runOf, canvas().runBefore];
	const named = (name: string) => ({ ...emptyCanvas(), name });
	const start = useRuns.getState().start;
	beforeEach(() => {
		useCanvas.setState({
			history: begin(emptyCanvas()),
			runOf: {},
			runBefore: {},
			chains: {},
			problems: {},
			aside: {},
		});
		canvas().replace(named("first"));
		canvas().adopt("agent", "run_1");
		canvas().adopt("agent", "run_2");
	});
	afterEach(() => useRuns.setState({ start }));

	test("then a node of the same id has none of them, and undo and redo bring each canvas with its own", () => {
		canvas().replace(named("second"));
		expect(shown()).toEqual(["second", {}, {}]);
		canvas().adopt("agent", "run_3");
		canvas().undo();
		expect(shown()).toEqual(["first", { agent: "run_2" }, { agent: "run_1" }]);
		canvas().redo();
		expect(shown()).toEqual(["second", { agent: "run_3" }, {}]);
	});

	test("then steps within one canvas leave its newest runs", () => {
		canvas().edit((now) => ({ ...now, name: "renamed" }));
		canvas().adopt("agent", "run_3");
		canvas().undo();
		expect(shown()).toEqual(["first", { agent: "run_3" }, { agent: "run_2" }]);
	});

	test("then a run whose start was under way is of the canvas that it was started on", async () => {
		let confirm: (runs: Record<string, string>) => void = () => {};
		useRuns.setState({ start: () => new Promise((resolve) => (confirm = resolve)) });
		const node: CanvasNode = { id: "agent", kind: "agent", x: 0, y: 0, data: { agent: "react", task: "do it" } };
		canvas().edit((now) => ({ ...now, nodes: [node] }));
		const underWay = canvas().run("agent");
		canvas().replace(named("second"));
		confirm({ agent: "run_3" });
		await underWay;
		expect([canvas().runOf, canvas().chains]).toEqual([{}, {}]);
		canvas().undo();
		expect([canvas().runOf, canvas().chains]).toEqual([{ agent: "run_3" }, {}]);
	});

	test("then runs of canvases that undo does not reach any more are forgotten", () => {
		useCanvas.setState({ history: begin(canvas().history.present) });
		for (let n = 0; n < 300; n++) canvas().replace(named(`canvas ${n}`));
		expect(Object.keys(canvas().aside).length).toBeLessThanOrEqual(canvas().history.past.length);
	});
});

test("given a run and the one before it, when the page is reloaded, then both are there to be compared", () => {
	vi.stubGlobal("localStorage", new MemoryStore());
	vi.stubGlobal("sessionStorage", new MemoryStore());
	const runs = { agent: "run_2" };
	writeSaved({ document: emptyCanvas(), runs, before: { agent: "run_1" }, chains: {}, revisions: {} });
	expect(readSaved(() => {})).toMatchObject({ runs, before: { agent: "run_1" } });
});
