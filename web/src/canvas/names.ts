/** What the agents of a canvas are called. Pure. */

import { type AgentData, type AgentNode, type CanvasDocument, type CanvasNode, LIMITS } from "./document";

/** What a default name leaves to its number. */
const DIGITS = 6;

/** The type of an agent in words: where none is given, the supervisor chooses. */
export function typeOf({ agent }: Pick<AgentData, "agent">): string {
	return agent ?? "supervisor";
}

/** What the node is called wherever it is spoken of. */
export function nameOf({ data }: Pick<AgentNode, "data">): string {
	return data.name ?? typeOf(data);
}

/** The canvas with a name for each agent that came without one: its type and a number. */
export function named(document: CanvasDocument): CanvasDocument {
	if (!document.nodes.some((node) => node.kind === "agent" && node.data.name === undefined)) return document;
	const names = new Names(document.nodes);
	return { ...document, nodes: document.nodes.map((node) => withName(node, names)) };
}

/** Nodes that come to others: whose name somebody has gets the next number. */
export function namedApart(document: CanvasDocument, nodes: CanvasNode[]): CanvasNode[] {
	const names = new Names(document.nodes);
	return nodes.map((node) => {
		if (node.kind !== "agent" || node.data.name === undefined) return withName(node, names);
		return { ...node, data: { ...node.data, name: names.take(node.data.name) } };
	});
}

/** The name of an agent whose field is left: without spaces around, never empty, and nobody else's. */
export function settledName(document: CanvasDocument, { id, data }: AgentNode): string {
	const names = new Names(document.nodes.filter((node) => node.id !== id));
	const typed = data.name?.trim();
	return typed ? names.take(typed) : names.next(typeOf(data), 1);
}

/** What changes with the type of an agent: a name that nobody has chosen goes with it. */
export function retyped(document: CanvasDocument, { id, data }: AgentNode, agent: string | null): Partial<AgentData> {
	const chosen = data.name !== undefined && !isDefault(data.name, typeOf(data));
	if (chosen) return { agent };
	const names = new Names(document.nodes.filter((node) => node.id !== id));
	return { agent, name: names.next(typeOf({ agent }), 1) };
}

/**
 * What the runs of a row are called on the server, by the ids of their nodes: as the agents where no two have the same name, else as
 * the nodes. The command line does the same (`cli/src/commands/canvas/plan.rs`).
 */
export function partNames(row: AgentNode[]): Map<string, string> {
	const names = row.map(({ id, data }) => data.name ?? id);
	const differ = new Set(names).size === row.length;
	return new Map(row.map(({ id, data }) => [id, differ ? (data.name ?? id) : id]));
}

function withName(node: CanvasNode, names: Names): CanvasNode {
	if (node.kind !== "agent" || node.data.name !== undefined) return node;
	return { ...node, data: { ...node.data, name: names.next(typeOf(node.data), 1) } };
}

function isDefault(name: string, type: string): boolean {
	return name === `${stemOf(type)} ${/\d+$/.exec(name)?.[0]}`;
}

/** So much of a name that a number has room behind it; no character is cut in two. */
function stemOf(name: string): string {
	return name.slice(0, LIMITS.agentName - DIGITS).replace(/[\uD800-\uDBFF]$/, "");
}

/** Names that are taken, and the next ones that are free. */
class Names {
	private readonly taken: Set<string>;
	/** Where the search goes on: as many agents as a canvas has are named in one pass. */
	private readonly numbers = new Map<string, number>();

	constructor(nodes: CanvasNode[]) {
		this.taken = new Set(nodes.flatMap((node) => (node.kind === "agent" ? (node.data.name ?? []) : [])));
	}

	/** This name, or where somebody has it, the next number of it. */
	take(name: string): string {
		if (this.taken.has(name)) return this.next(name.replace(/ \d+$/, ""), 2);
		this.taken.add(name);
		return name;
	}

	next(base: string, from: number): string {
		const stem = stemOf(base);
		let number = this.numbers.get(stem) ?? from;
		while (this.taken.has(`${stem} ${number}`)) number += 1;
		this.numbers.set(stem, number + 1);
		this.taken.add(`${stem} ${number}`);
		return `${stem} ${number}`;
	}
}
