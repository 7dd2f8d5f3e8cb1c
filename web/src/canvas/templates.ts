/** Canvases to begin with. Each runs as it is, given the collection that it names. */

import { type AgentData, type CanvasDocument, type CanvasNode, edgeId, emptyCanvas } from "./document";

type Template = {
	title: string;
	description: string;
	/** A new one in a namespace. */
	make: (namespace: string) => CanvasDocument;
};

const agent = (id: string, x: number, y: number, data: Partial<AgentData>): CanvasNode => ({
	id,
	kind: "agent",
	x,
	y,
	data: { agent: null, task: "", ...data },
});
const tool = (name: string, x: number, y: number): CanvasNode => ({
	id: name,
	kind: "tool",
	x,
	y,
	data: { tool: name },
});
const collection = (name: string, x: number, y: number): CanvasNode => ({
	id: `collection-${name}`,
	kind: "collection",
	x,
	y,
	data: { collection: name },
});

function canvas(name: string, namespace: string, nodes: CanvasNode[], edges: [string, string][]): CanvasDocument {
	return {
		...emptyCanvas(),
		name,
		namespace,
		nodes,
		edges: edges.map(([from, to]) => ({ id: edgeId(from, to), from, to })),
	};
}

export const TEMPLATES: Template[] = [
	{
		title: "Calculate",
		description: "One agent with a calculator and a clock.",
		make: (namespace) =>
			canvas(
				"Calculate",
				namespace,
				[
					tool("calculator", 40, 60),
					tool("clock", 40, 180),
					agent("agent", 360, 60, { agent: "react", task: "What is 17% of 230?" }),
				],
				[
					["calculator", "agent"],
					["clock", "agent"],
				],
			),
	},
	{
		title: "Ask the handbook",
		description:
			"An agent that reads a collection and cites what it says. Upload the files of examples/handbook as the collection handbook first.",
		make: (namespace) =>
			canvas(
				"Ask the handbook",
				namespace,
				[
					collection("handbook", 40, 60),
					tool("calculator", 40, 200),
					agent("agent", 360, 60, {
						agent: "react",
						task: "What does a winch launch cost, and what do three of them cost?",
					}),
				],
				[
					["collection-handbook", "agent"],
					["calculator", "agent"],
				],
			),
	},
	{
		title: "Research, then rewrite",
		description: "Two agents in a row: the second works on the answer of the first.",
		make: (namespace) =>
			canvas(
				"Research, then rewrite",
				namespace,
				[
					collection("handbook", 40, 60),
					agent("research", 340, 60, { agent: "react", task: "What must a new member know before the first flight?" }),
					agent("rewrite", 820, 60, {
						agent: null,
						task: "Rewrite this as three short sentences for a poster:\n\n{{input}}",
					}),
				],
				[
					["collection-handbook", "research"],
					["research", "rewrite"],
				],
			),
	},
];
