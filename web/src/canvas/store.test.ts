import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import { Offline } from "@/api/client";
import { unknownRun } from "@/runs/fold";
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
	expect(useCanvas.getState().problems.node).toBe("a call is under way; at_seq 1");
	expect(useCanvas.getState().runOf.node).toBe("run_1");
});

test("given a kept canvas that can't be read back, then its text is set aside and the page says so", async () => {
	const kept = JSON.stringify({ canvas: "{}", runs: {}, chains: {} });
	const browser = new MemoryStore([["riverrun.canvas", kept]]);
	vi.stubGlobal("localStorage", browser);
	vi.stubGlobal("sessionStorage", new MemoryStore());
	useCanvas.getState().load("");
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
	expect(readSaved("", () => {})).toMatchObject({ runs, before: { agent: "run_1" } });
});

describe("given a canvas with rows of agents, when all is run", () => {
	const canvas = useCanvas.getState;
	const { start, stopAll } = useRuns.getState();
	const agent = (id: string, y: number, task = "do it"): CanvasNode => ({
		id,
		kind: "agent",
		x: 0,
		y,
		data: { agent: "react", task, name: id.toUpperCase() },
	});
	/** Each request for a start: the names of its runs, and its key. */
	let asked: { names: string[]; key: string }[] = [];
	beforeEach(() => {
		asked = [];
		useRuns.setState({
			runs: {},
			start: async ({ runs }, key) => {
				asked.push({ names: runs.map(({ name }) => name), key });
				return Object.fromEntries(runs.map(({ name }) => [name, `run_${name}`]));
			},
		});
		const edges = [
			{ id: "a->b", from: "a", to: "b" },
			{ id: "a->c", from: "a", to: "c" },
		];
		const nodes = [agent("a", 0), agent("b", 1), agent("c", 2), agent("alone", 3), agent("blank", 4, "")];
		useCanvas.setState({ history: begin({ ...emptyCanvas(), nodes, edges }), runOf: {}, chains: {}, problems: {} });
	});
	afterEach(() => useRuns.setState({ runs: {}, start, stopAll }));

	test("then every row is one start, and each node has its run", async () => {
		await canvas().runAll();
		expect(asked.map(({ names }) => names)).toEqual([["A", "B", "C"], ["ALONE"]]);
		expect(canvas().runOf).toEqual({ a: "run_A", b: "run_B", c: "run_C", alone: "run_ALONE" });
		expect(canvas().notice).toBe("4 agents are started; 1 agent is left out for want of a task");
		expect(canvas().chains).toEqual({});
	});

	test("then a row whose start is under way is not started again, and a reload asks for the same row under the same key", async () => {
		const first = canvas().runAll();
		const { chains } = canvas();
		await canvas().runAll();
		await first;
		expect(asked).toHaveLength(2);
		expect(Object.keys(chains).sort()).toEqual(["alone", "c"]);
		expect(asked.map(({ key }) => key).sort()).toEqual(Object.values(chains).sort());
	});

	test("then an agent whose run is being started or goes on is not started once more, by whatever it is asked", async () => {
		const first = canvas().run("b");
		await Promise.all([canvas().run("b"), canvas().run("a"), first]);
		expect(asked.map(({ names }) => names)).toEqual([["A", "B"]]);
		expect(canvas().notice).toBe("A runs already: stop it first");

		const run = { ...unknownRun("run_B"), connected: false, refused: false };
		// What was asked of it last was refused, which does not end it.
		useRuns.setState({ runs: { run_B: { ...run, problem: "the backend is offline" } } });
		await canvas().run("b");
		expect(asked).toHaveLength(1);
		useRuns.setState({ runs: { run_B: { ...run, problem: "there is no such run", refused: true } } });
		await canvas().run("b");
		expect(asked).toHaveLength(2);
	});

	test.each([
		["one agent", () => canvas().run("b")],
		["all", () => canvas().runAll()],
	])("then a start of %s that nobody answered is asked for under its key again, and no other is", async (_, begin) => {
		let isAway = true;
		const answered = useRuns.getState().start;
		useRuns.setState({
			start: async (chain, key) => {
				const started = await answered(chain, key);
				if (isAway) throw new Offline();
				return started;
			},
		});
		const keys = () => asked.splice(0).map(({ key }) => key);
		await begin();
		const first = keys();
		expect(Object.values(canvas().problems)[0]).toBe("the backend is offline");
		await begin();
		expect(keys()).toEqual(first);
		// Another task is another start, and so is the same one after an answer.
		canvas().change("a", { task: "do something else" });
		await begin();
		const second = keys();
		expect(second[0]).not.toBe(first[0]);
		isAway = false;
		await begin();
		expect(keys()).toEqual(second);
		useCanvas.setState({ runOf: {} });
		await begin();
		expect(keys().filter((key) => second.includes(key))).toEqual([]);
	});

	test("then stop all stops what goes on, and nothing that has ended", async () => {
		await canvas().runAll();
		const run = { connected: true, problem: null, refused: false };
		useRuns.setState({
			runs: {
				run_A: { ...unknownRun("run_A"), ...run },
				run_B: { ...unknownRun("run_B"), ...run, result: {} as never },
			},
		});
		const stopped: string[] = [];
		useRuns.setState({
			stopAll: async (ids) => {
				stopped.push(...ids);
			},
		});
		await canvas().stopAll();
		expect(stopped).toEqual(["run_A"]);
	});
});

test("given agents that are added and pasted, then each has a name of its own, which undo takes back with it", () => {
	const canvas = useCanvas.getState;
	const names = () => canvas().history.present.nodes.flatMap((one) => (one.kind === "agent" ? [one.data.name] : []));
	useCanvas.setState({ history: begin(emptyCanvas()) });
	const draft = { kind: "agent", x: 0, y: 0, data: { agent: "react", task: "" } } as const;
	canvas().add(draft);
	const [added] = canvas().history.present.nodes;
	canvas().change(added?.id ?? "", { name: "Critic" });
	canvas().select([added?.id ?? ""]);
	canvas().copy();
	canvas().paste();
	canvas().add(draft);
	expect(names()).toEqual(["Critic", "Critic 2", "react 1"]);
	canvas().undo();
	canvas().undo();
	canvas().undo();
	expect(names()).toEqual(["react 1"]);
	canvas().redo();
	expect(names()).toEqual(["Critic"]);
});
