/** What is run when an agent node is: a request made from the node and what is connected to it. Pure. */

import type { RunBody } from "@/api/client";
import { type AgentNode, type CanvasDocument, nodeOf } from "./document";

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

/** The task with the answers of the agents before put in; they go below it when it has no place for them. */
export function taskWith(task: string, answers: string[]): string {
	const input = answers.join("\n\n");
	if (task.includes(INPUT)) return task.replaceAll(INPUT, () => input);
	if (task.trim() === "") return input;
	return input ? `${task}\n\n${input}` : task;
}

/** The request: exactly the tools and collections that are connected, and no others. */
export function requestOf(document: CanvasDocument, node: AgentNode, answers: string[]): RunBody {
	const from = sources(document, node.id);
	const tools = [...new Set(from.flatMap((one) => (one.kind === "tool" ? [one.data.tool] : [])))].sort();
	const collections = [
		...new Set(from.flatMap((one) => (one.kind === "collection" ? [one.data.collection] : []))),
	].sort();
	// A connected collection is there to be read, and this is what reads one.
	if (collections.length > 0 && !tools.includes(SEARCH)) tools.push(SEARCH);
	const { agent, task, model, maxIters, approval, session } = node.data;
	return {
		task: taskWith(task, answers),
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
		if (one.data.task.trim() === "" && agentsBefore(document, one.id).length === 0) {
			return one.id === node.id ? "type a task first" : "an agent before this one has no task";
		}
	}
	return null;
}
