import { expect, test } from "vitest";
import { type CanvasDocument, type CanvasNode, edgeId, emptyCanvas } from "./document";
import { rowOf } from "./plan";
import { free, MOST_TOGETHER, notTogether, rowsOf, told } from "./together";

const agent = (id: string, y = 0, task = "do it"): CanvasNode => ({
	id,
	kind: "agent",
	x: 0,
	y,
	data: { agent: "react", task },
});
function given(nodes: CanvasNode[], edges: [string, string][] = []): CanvasDocument {
	return { ...emptyCanvas(), nodes, edges: edges.map(([from, to]) => ({ id: edgeId(from, to), from, to })) };
}
const planned = (document: CanvasDocument) => {
	const { rows, idle } = rowsOf(document);
	return { rows: rows.map((row) => row.map(({ id }) => id)), idle: idle.map(({ id }) => id) };
};

test("given agents in rows and alone, when all is run, then each is in one row, behind those that it waits for", () => {
	const document = given(
		[agent("alone", 9), agent("d", 3), agent("c", 2), agent("b", 1), agent("a")],
		[
			["a", "b"],
			["a", "c"],
			["b", "d"],
			["c", "d"],
		],
	);
	expect(planned(document)).toEqual({ rows: [["a", "b", "c", "d"], ["alone"]], idle: [] });
});

test("given a row with two ends, then it is one chain, and its first agent runs once", () => {
	const document = given(
		[agent("a"), agent("b", 1, ""), agent("c", 2)],
		[
			["a", "b"],
			["a", "c"],
		],
	);
	const [row = []] = rowsOf(document).rows;
	expect(rowOf(document, row).runs.map(({ name, after, run }) => [name, after, run.task])).toEqual([
		["a", [], "do it"],
		["b", ["a"], "{{input}}"],
		["c", ["a"], "do it"],
	]);
});

test("given two beginnings of one agent, then they are one row", () => {
	const document = given(
		[agent("a"), agent("b", 1), agent("end", 2)],
		[
			["a", "end"],
			["b", "end"],
		],
	);
	expect(planned(document).rows).toEqual([["a", "b", "end"]]);
});

test("given an agent without a task, then it and what waits for it are left out, and the others are not", () => {
	const document = given(
		[agent("blank", 0, " "), agent("a", 1), agent("end", 2), agent("after", 3), agent("beside", 4)],
		[
			["blank", "end"],
			["a", "end"],
			["end", "after"],
			["a", "beside"],
		],
	);
	expect(planned(document)).toEqual({ rows: [["a", "beside"]], idle: ["blank", "end", "after"] });
});

test("given a row of which a node runs, then the row is left alone", () => {
	const { rows } = rowsOf(given([agent("a"), agent("b", 1), agent("c", 2)], [["a", "b"]]));
	expect(free(rows, new Set(["b"])).map((row) => row.map(({ id }) => id))).toEqual([["c"]]);
});

test("given more agents than a browser follows at once, then none is started and it is said why", () => {
	const many = (count: number) => rowsOf(given(Array.from({ length: count }, (_, at) => agent(`n${at}`)))).rows;
	expect(notTogether(many(MOST_TOGETHER))).toBeNull();
	expect(notTogether(many(MOST_TOGETHER + 1))).toContain("201 agents; at most 200");
});

test.each([
	[3, 0, 0, "3 agents are started"],
	[1, 0, 2, "1 agent is started; 2 agents are left out for want of a task"],
	[0, 1, 0, "no agent is started; 1 row goes on already"],
])(
	"given %i agents to start, %i rows that go on and %i without a task, then it says %j",
	(agents, going, idle, words) => {
		const { rows } = rowsOf(given(Array.from({ length: agents }, (_, at) => agent(`n${at}`))));
		expect(told(rows, going, idle)).toBe(words);
	},
);
