/** What is run when an agent node is: a request made from the node and what is connected to it. Pure. */

import type { ChainBody, RunBody } from "@/api/client";
import { type AgentNode, type CanvasDocument, nodeOf } from "./document";
import { nameOf, partNames } from "./names";

/** Stands in a task for the answers of the agents before; the server puts them in, as data. */
export const INPUT = "{{input}}";
const SEARCH = "knowledge_search";

/** The agents whose answers go into this one, in the order in which they stand on the canvas. */
export function agentsBefore(document: CanvasDocument, id: string): AgentNode[] {
	return sources(document, id)
		.filter((node) => node.kind === "agent")
		.sort((a, b) => a.y - b.y || a.x - b.x || a.id.localeCompare(b.id));
}

function sources(document: CanvasDocument, id: string) {
	return document.edges
		.filter((edge) => edge.to === id)
		.map((edge) => nodeOf(document, edge.from))
		.filter((node) => node !== undefined);
}

/** Every agent that must have answered before this one runs, and then this one; each after those it waits for. */
export function chainTo(document: CanvasDocument, id: string): AgentNode[] {
	const order: AgentNode[] = [];
	const seen = new Set<string>();
	const visit = (node: AgentNode) => {
		if (seen.has(node.id)) return;
		seen.add(node.id);
		for (const before of agentsBefore(document, node.id)) visit(before);
		order.push(node);
	};
	const last = nodeOf(document, id);
	if (last?.kind === "agent") visit(last);
	return order;
}

/** The agents up to this one as one chain: the server begins each when those before it have answered. */
export function chainOf(document: CanvasDocument, id: string): ChainBody {
	return rowOf(document, chainTo(document, id));
}

/** Agents as one chain, with all that they wait for among them. */
export function rowOf(document: CanvasDocument, row: AgentNode[]): ChainBody {
	const names = partNames(row);
	const inChain = ({ id }: AgentNode) => names.get(id) ?? id;
	return {
		namespace: document.namespace,
		runs: row.map((node) => ({
			name: inChain(node),
			after: agentsBefore(document, node.id).map(inChain),
			run: requestOf(document, node),
		})),
	};
}

/** The request: exactly the tools and collections that are connected, and no others. */
export function requestOf(document: CanvasDocument, node: AgentNode): RunBody {
	const from = sources(document, node.id);
	const tools = [...new Set(from.flatMap((one) => (one.kind === "tool" ? [one.data.tool] : [])))].sort();
	const collections = [
		...new Set(from.flatMap((one) => (one.kind === "collection" ? [one.data.collection] : []))),
	].sort();
	// A connected collection is there to be read, and this is what reads one.
	if (collections.length > 0 && !tools.includes(SEARCH)) tools.push(SEARCH);
	const { agent, task, model, maxIters, approval, session } = node.data;
	return {
		// What is asked of an agent that says nothing is what those before it have answered.
		task: task.trim() === "" ? INPUT : task,
		namespace: document.namespace,
		tools,
		collections,
		...(agent ? { agent } : {}),
		...(model ? { model } : {}),
		...(maxIters ? { max_iters: maxIters } : {}),
		...(approval ? { approval } : {}),
		...(session ? { session } : {}),
		metadata: { canvas: document.name, node: node.id },
	};
}

/** Why the node can't be run, in words; null when it can. */
export function notRunnable(document: CanvasDocument, node: AgentNode): string | null {
	for (const one of chainTo(document, node.id)) {
		if (agentsBefore(document, one.id).length > 0) continue;
		const isThis = one.id === node.id;
		if (one.data.task.trim() === "") {
			return isThis ? "type a task first" : `${nameOf(one)}, which runs before this one, has no task`;
		}
		if (one.data.task.includes(INPUT)) {
			return `the task of ${isThis ? "this agent" : nameOf(one)} has ${INPUT}, and no agent before it answers`;
		}
	}
	return null;
}
