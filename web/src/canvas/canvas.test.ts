import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { describe, expect, test } from "vitest";
import {
	aligned,
	type CanvasDocument,
	type CanvasNode,
	closing,
	copied,
	distributed,
	edgeId,
	emptyCanvas,
	LIMITS,
	moved,
	placeOf,
	refusal,
	takenAlong,
	without,
} from "./document";
import { exportCanvas, ImportError, importCanvas, publishedSchema } from "./exchange";
import { amend, begin, MAX_HISTORY, record, redo, undo } from "./history";
import { chainOf, chainTo, notRunnable, requestOf } from "./plan";
import { TEMPLATES } from "./templates";

const agent = (id: string, task = "do it"): CanvasNode => ({
	id,
	kind: "agent",
	x: 0,
	y: 0,
	data: { agent: "react", task },
});
const tool = (name: string): CanvasNode => ({ id: name, kind: "tool", x: 0, y: 0, data: { tool: name } });
const collection = (name: string): CanvasNode => ({
	id: name,
	kind: "collection",
	x: 0,
	y: 0,
	data: { collection: name },
});
const note: CanvasNode = { id: "note", kind: "note", x: 0, y: 0, data: { text: "" } };

function given(nodes: CanvasNode[], edges: [string, string][] = []): CanvasDocument {
	return { ...emptyCanvas(), nodes, edges: edges.map(([from, to]) => ({ id: edgeId(from, to), from, to })) };
}
const request = (document: CanvasDocument, id: string) => {
	const node = document.nodes.find((one) => one.id === id);
	if (node?.kind !== "agent") throw new Error("no agent");
	return requestOf(document, node);
};

describe("connections", () => {
	const document = given(
		[agent("a"), agent("b"), agent("c"), tool("t"), note],
		[
			["a", "b"],
			["b", "c"],
			["t", "a"],
		],
	);
	test.each([
		["t", "b", null],
		["a", "c", null],
		["a", "a", "a node can't be connected to itself"],
		["a", "t", "only an agent takes an input"],
		["note", "a", "a note gives nothing to an agent"],
		["a", "b", "they are connected"],
		["c", "a", "that would be a circle: an agent can't wait for itself"],
		["gone", "a", "one of the nodes is gone"],
	])("%s to %s: %s", (from, to, reason) => expect(refusal(document, from, to)).toBe(reason));
});

describe("the request of an agent node", () => {
	test("names exactly what is connected", () => {
		const document = given([agent("a"), tool("clock"), tool("calculator"), collection("docs")], [["clock", "a"]]);
		expect(request(document, "a")).toMatchObject({ tools: ["clock"], collections: [], agent: "react", task: "do it" });
	});
	test("reads a connected collection", () => {
		const document = given([agent("a"), collection("docs")], [["docs", "a"]]);
		expect(request(document, "a")).toMatchObject({ tools: ["knowledge_search"], collections: ["docs"] });
	});
	test("of the supervisor names no agent", () => {
		const document = given([{ ...agent("a"), data: { agent: null, task: "x" } } as CanvasNode]);
		expect(request(document, "a")).not.toHaveProperty("agent");
	});
	test("leaves the place for answers to the server, and has one when it says nothing", () => {
		const tasks = ["Shorten: {{input}}", "Shorten", " "].map((task) => request(given([agent("a", task)]), "a").task);
		expect(tasks).toEqual(["Shorten: {{input}}", "Shorten", "{{input}}"]);
	});
	test("runs what it waits for first, each once", () => {
		const document = given(
			[agent("d"), agent("a"), agent("b"), agent("c")],
			[
				["a", "b"],
				["a", "c"],
				["b", "d"],
				["c", "d"],
			],
		);
		expect(chainTo(document, "d").map((one) => one.id)).toEqual(["a", "b", "c", "d"]);
		const { namespace, runs } = chainOf(document, "d");
		expect([namespace, ...runs.map((run) => [run.name, run.after])]).toEqual([
			document.namespace,
			["a", []],
			["b", ["a"]],
			["c", ["a"]],
			["d", ["b", "c"]],
		]);
		expect(runs.every((run) => run.run.metadata?.node === run.name)).toBe(true);
	});
	test("is not made without a task", () => {
		const document = given([agent("a", " ")]);
		expect(notRunnable(document, document.nodes[0] as never)).toBe("type a task first");
	});
	test("is not made where a first task waits for what nobody answers", () => {
		const document = given([agent("a", "Say it: {{input}}")]);
		expect(notRunnable(document, document.nodes[0] as never)).toBe(
			"the task of this agent has {{input}}, and no agent before it answers",
		);
	});
});

describe("editing", () => {
	test("a removed group leaves what lay in it where it was", () => {
		const group: CanvasNode = { id: "g", kind: "group", x: 100, y: 50, data: { title: "" } };
		const document = given([group, { ...agent("a"), x: 10, y: 10, group: "g" }]);
		expect(without(document, new Set(["g"])).nodes).toMatchObject([{ id: "a", x: 110, y: 60, group: undefined }]);
	});
	test("copies have names of their own and keep their connections", () => {
		const { nodes, edges } = copied([agent("a"), tool("t")], [{ id: "e", from: "t", to: "a" }], 10);
		expect(new Set(nodes.map((one) => one.id)).has("a")).toBe(false);
		expect(edges).toMatchObject([{ from: nodes[1]?.id, to: nodes[0]?.id }]);
	});
	test.each([
		["left", [0, 0]],
		["right", [40, 0]],
		["center", [20, 0]],
	] as const)("aligned %s", (how, xs) => {
		const nodes = [
			{ ...agent("a"), x: 10 },
			{ ...agent("b"), x: 0 },
		];
		const size = (id: string) => ({ width: id === "a" ? 60 : 100, height: 10 });
		const places = aligned(nodes, how, size);
		expect([places.get("a")?.x, places.get("b")?.x]).toEqual(xs);
	});
	describe("given a group with two nodes and one beside it", () => {
		const group: CanvasNode = { id: "g", kind: "group", x: 100, y: 50, width: 300, height: 200, data: { title: "" } };
		const [a, b] = [
			{ ...agent("a"), x: 10, y: 10, group: "g" },
			{ ...agent("b"), x: 90, y: 40, group: "g" },
		];
		const document = given([group, a, b, { ...agent("c"), x: 500 }], [["a", "b"]]);

		test("copying the group takes along what lies in it", () => {
			const { nodes, edges } = takenAlong(document, new Set(["g"]));
			expect(nodes.map((one) => one.id)).toEqual(["g", "a", "b"]);
			expect(edges).toHaveLength(1);
		});
		test("copying one of its nodes alone sets it free where it stands", () => {
			expect(takenAlong(document, new Set(["b"])).nodes).toMatchObject([{ id: "b", x: 190, y: 90, group: undefined }]);
		});
		test("nodes in and beside it are moved to places on the canvas", () => {
			const places = new Map([
				["a", { x: 0, y: 0 }],
				["c", { x: 0, y: 0 }],
			]);
			const after = moved(document, places);
			expect(after.nodes.filter((one) => places.has(one.id)).map((one) => placeOf(after, one))).toEqual([
				{ x: 0, y: 0 },
				{ x: 0, y: 0 },
			]);
			expect(after.nodes.find((one) => one.id === "b")).toBe(b);
		});
	});
	test("distributed nodes have equal gaps between the outermost ones", () => {
		const nodes = [
			{ ...agent("a"), x: 0 },
			{ ...agent("c"), x: 300 },
			{ ...agent("b"), x: 20 },
		];
		const places = distributed(nodes, "x", (id) => ({ width: id === "b" ? 100 : 50, height: 10 }));
		expect(["a", "b", "c"].map((id) => places.get(id)?.x)).toEqual([0, 125, 300]);
		expect(distributed(nodes.slice(1), "y", () => ({ width: 1, height: 1 })).size).toBe(0);
	});
	test("undo and redo go through what was recorded; amendments are not steps; the past is bounded", () => {
		let history = begin(0);
		for (let n = 1; n <= MAX_HISTORY + 50; n++) history = record(history, n);
		expect(history.past.length).toBe(MAX_HISTORY);
		history = amend(history, -1);
		expect(undo(history).present).toBe(MAX_HISTORY + 49);
		expect(redo(undo(history)).present).toBe(-1);
	});
});

describe("export and import", () => {
	test("every template comes back as it was", () => {
		for (const template of TEMPLATES) {
			const document = template.make("own");
			expect(document.namespace).toBe("own");
			expect(importCanvas(exportCanvas(document))).toEqual(document);
		}
	});

	const file = (change: (plain: Record<string, unknown>) => void) => {
		const plain = JSON.parse(exportCanvas(given([agent("a"), agent("b")])));
		change(plain);
		return JSON.stringify(plain);
	};
	const many = (count: number) => Array.from({ length: count }, (_, at) => agent(`n${at}`));
	test.each([
		["not JSON", "{", "not JSON"],
		["another version", file((p) => (p.version = 2)), "version"],
		["an unknown key", file((p) => (p.script = "x")), "script"],
		[
			"an unknown key in a node",
			file((p) => Object.assign((p.nodes as object[])[0] as object, { onload: "x" })),
			"onload",
		],
		["a polluting key", '{"__proto__": {"a": 1}}', "__proto__"],
		[
			"a circle",
			file(
				(p) =>
					(p.edges = [
						{ from: "a", to: "b" },
						{ from: "b", to: "a" },
					]),
			),
			"circle",
		],
		["a connection to nothing", file((p) => (p.edges = [{ from: "a", to: "z" }])), "gone"],
		["the same id twice", file((p) => (p.nodes = [agent("a"), agent("a")])), "same id"],
		["a group that is none", file((p) => (p.nodes = [{ ...agent("a"), group: "b" }, agent("b")])), "group"],
		["too many nodes", file((p) => (p.nodes = many(LIMITS.nodes + 1))), "nodes"],
		["a place off the map", file((p) => (p.nodes = [{ ...agent("a"), x: 1e300 }])), "x"],
		["100,000 nodes", file((p) => (p.nodes = many(100_000))), /nodes|MiB/],
		["more than a file may have", `"${"a".repeat(LIMITS.bytes)}"`, "4 MiB"],
		["an abyss of lists", "[".repeat(200_000) + "]".repeat(200_000), /JSON|the file/],
		["a constructor", '{"nodes": [{"constructor": {"prototype": 1}}]}', "is not allowed"],
		["a foreign namespace form", file((p) => (p.namespace = "a__b")), "namespace"],
	])("%s is refused with its place", (_, json, words) => {
		expect(() => importCanvas(json)).toThrow(ImportError);
		expect(() => importCanvas(json)).toThrow(words);
		expect(({} as Record<string, unknown>).a).toBeUndefined();
	});

	describe("given as many agents and connections as there may be", () => {
		const agents = many(LIMITS.nodes);
		/** Each waits for the four before it. */
		const edges = agents.flatMap((_, at) =>
			[1, 2, 3, 4].filter((back) => back <= at).map((back) => ({ from: `n${at - back}`, to: `n${at}` })),
		);
		const largest = (extra: { from: string; to: string }[]) =>
			file((p) => Object.assign(p, { nodes: agents, edges: [...edges, ...extra] }));

		test("then all of it is read", () => {
			const read = importCanvas(largest([]));
			expect([read.nodes.length, read.edges.length]).toEqual([2_000, 7_990]);
			expect(closing(read)).toBeNull();
		});
		test("when the last one closes a circle through all of them, then it is refused", () => {
			expect(() => importCanvas(largest([{ from: "n1999", to: "n0" }]))).toThrow("circle");
		});
		test("when one is there twice, then it is refused", () => {
			expect(() => importCanvas(largest([{ from: "n0", to: "n1" }]))).toThrow("they are connected");
		});
	});

	describe("the files that the command line reads, too", () => {
		const files = (folder: string) => {
			const path = fileURLToPath(new URL(`../../fixtures/canvas/${folder}`, import.meta.url));
			return readdirSync(path).map((name) => [name, readFileSync(join(path, name), "utf8")] as const);
		};
		test.each(files("good"))("%s is read and comes back as it was", (_, json) => {
			expect(JSON.parse(exportCanvas(importCanvas(json)))).toEqual(JSON.parse(json));
		});
		test.each(files("bad"))("%s is refused", (_, json) => {
			expect(() => importCanvas(json)).toThrow(ImportError);
		});
	});

	test("the published schema is the one that is checked (`UPDATE_SCHEMA=1 npm test` writes it anew)", () => {
		const path = fileURLToPath(new URL("../../public/canvas.schema.json", import.meta.url));
		const schema = `${JSON.stringify(publishedSchema(), null, 2)}\n`;
		if (process.env.UPDATE_SCHEMA) writeFileSync(path, schema);
		expect(readFileSync(path, "utf8")).toBe(schema);
	});

	test("script in a label stays a label", () => {
		const hostile = given([agent("a", "<script>alert(1)</script>")]);
		expect(importCanvas(exportCanvas(hostile)).nodes[0]?.data).toMatchObject({ task: "<script>alert(1)</script>" });
	});
});
