import { describe, expect, test } from "vitest";
import { type AgentNode, type CanvasDocument, type CanvasNode, emptyCanvas, LIMITS } from "./document";
import { exportCanvas, importCanvas } from "./exchange";
import { named, namedApart, nameOf, partNames, retyped, settledName } from "./names";
import { chainOf } from "./plan";

const agent = (id: string, name?: string, type: string | null = "react"): AgentNode => ({
	id,
	kind: "agent",
	x: 0,
	y: 0,
	data: { agent: type, task: "do it", ...(name === undefined ? {} : { name }) },
});
const tool: CanvasNode = { id: "t", kind: "tool", x: 0, y: 0, data: { tool: "clock" } };
const given = (...nodes: CanvasNode[]): CanvasDocument => ({ ...emptyCanvas(), nodes });
const names = (nodes: CanvasNode[]) => nodes.flatMap((node) => (node.kind === "agent" ? [node.data.name] : []));

test("given agents without names, when they come onto the page, then each is called as its type with a number that is free", () => {
	const document = given(agent("a"), tool, agent("b", "react 2"), agent("c"), agent("d", undefined, null));
	expect(names(named(document).nodes)).toEqual(["react 1", "react 2", "react 3", "supervisor 1"]);
	expect(named(named(document))).toEqual(named(document));
	const whole = named(document);
	expect(named(whole)).toBe(whole);
});

test("given as many agents as a canvas has, when they are named, then no two are called the same", () => {
	const document = given(...Array.from({ length: LIMITS.nodes }, (_, at) => agent(`n${at}`)));
	expect(new Set(names(named(document).nodes)).size).toBe(LIMITS.nodes);
});

test("given copies, when they are pasted, then they take the next numbers of their names", () => {
	const document = given(agent("a", "Critic"), agent("b", "react 1"));
	const pasted = namedApart(document, [
		agent("c", "Critic"),
		agent("d", "Critic"),
		agent("e", "react 1"),
		agent("f", "Own"),
	]);
	expect(names(pasted)).toEqual(["Critic 2", "Critic 3", "react 2", "Own"]);
});

test.each([
	["  Critic ", "Critic"],
	[undefined, "react 1"],
	["Taken", "Taken 2"],
	["react 7", "react 7"],
	["x".repeat(60), "x".repeat(60)],
])("given %j as a name, when its field is left, then it is %j", (typed, name) => {
	const node = agent("a", typed);
	expect(settledName(given(node, agent("b", "Taken")), node)).toBe(name);
});

test("given a name as long as one may be, when it is copied, then that of the copy is no longer and cuts no character", () => {
	const long = `${"x".repeat(53)}𝄞𝄞𝄞𝄞`.slice(0, LIMITS.agentName);
	const [copy] = names(namedApart(given(agent("a", long)), [agent("b", long)]));
	expect(copy).toBe(`${"x".repeat(53)} 2`);
});

test("given an agent of another type, then a name that nobody chose goes with it, and one that somebody chose stays", () => {
	const [plain, chosen] = [agent("a", "react 1"), agent("b", "Critic")];
	expect(retyped(given(plain, chosen), plain, null)).toEqual({ agent: null, name: "supervisor 1" });
	expect(retyped(given(plain, chosen), chosen, null)).toEqual({ agent: null });
});

describe("given a row", () => {
	const edges = [{ id: "a->b", from: "a", to: "b" }];
	const runs = (...row: AgentNode[]) =>
		chainOf({ ...given(...row), edges }, "b").runs.map(({ name, after }) => [name, after]);

	test("when its agents have names, then its runs are called so, and each names those that it waits for", () => {
		expect(runs(agent("a", "Researcher"), agent("b", "Critic"))).toEqual([
			["Researcher", []],
			["Critic", ["Researcher"]],
		]);
	});
	test("when an agent has none, then its run is called as its node", () => {
		expect(runs(agent("a"), agent("b", "Critic"))).toEqual([
			["a", []],
			["Critic", ["a"]],
		]);
	});
	test("when two have the same name, then all are called as their nodes", () => {
		expect([...partNames([agent("a", "Critic"), agent("b", "Critic")])]).toEqual([
			["a", "a"],
			["b", "b"],
		]);
		expect([...partNames([agent("a", "b"), agent("b")]).values()]).toEqual(["a", "b"]);
	});
});

test("given a name, then export and import keep it, and one that is script is words", () => {
	const hostile = "<script>alert(1)</script>";
	const [node] = importCanvas(exportCanvas(given(agent("a", hostile)))).nodes;
	expect(node?.kind === "agent" && nameOf(node)).toBe(hostile);
});
