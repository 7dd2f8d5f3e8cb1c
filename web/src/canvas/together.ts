/** What is run when everything on a canvas is. Pure. */

import type { AgentNode, CanvasDocument } from "./document";
import { agentsBefore } from "./plan";

/** A browser follows so many runs at once: each has a connection of its own, of which there are 255. */
export const MOST_TOGETHER = 200;

export type Together = {
	/** Agents that wait for each other, each behind those that it waits for: a row is one chain. */
	rows: AgentNode[][];
	/** Agents without a task, and those that would wait for them. */
	idle: AgentNode[];
};

/** The agents of the canvas in rows, from above to below: an agent in a row is run by those before it, and only once. */
export function rowsOf(document: CanvasDocument): Together {
	const before = new Map(agents(document).map((node) => [node.id, agentsBefore(document, node.id)]));
	const rowOf = new Map<string, AgentNode[]>();
	const idle: AgentNode[] = [];
	for (const node of inOrder(document, before)) {
		const waitsFor = before.get(node.id) ?? [];
		const asked = waitsFor.length > 0 || node.data.task.trim() !== "";
		if (!asked || waitsFor.some((one) => !rowOf.has(one.id))) {
			idle.push(node);
			continue;
		}
		// Where it waits for agents of several rows, these are one.
		const joined = [...new Set(waitsFor.flatMap((one) => rowOf.get(one.id) ?? []))];
		const row = [...joined, node];
		for (const one of row) rowOf.set(one.id, row);
	}
	return { rows: [...new Set(rowOf.values())], idle };
}

/** The rows of which nothing runs. */
export function free(rows: AgentNode[][], busy: ReadonlySet<string>): AgentNode[][] {
	return rows.filter((row) => !row.some((node) => busy.has(node.id)));
}

/** Why the rows can't be started, in words; null when they can. */
export function notTogether(rows: AgentNode[][]): string | null {
	const count = rows.flat().length;
	if (count > MOST_TOGETHER)
		return `these are ${count} agents; at most ${MOST_TOGETHER} are run together: run them one by one`;
	return null;
}

/** What is said of a start of everything. */
export function told(started: AgentNode[][], going: number, idle: number): string {
	const count = started.flat().length;
	const begun = count === 0 ? "no agent is started" : `${agentsIn(count)} started`;
	const left = [
		...(idle > 0 ? [`${agentsIn(idle)} left out for want of a task`] : []),
		...(going > 0 ? [`${going} row${going === 1 ? " goes" : "s go"} on already`] : []),
	];
	return [begun, ...left].join("; ");
}

function agentsIn(count: number): string {
	return count === 1 ? "1 agent is" : `${count} agents are`;
}

function agents(document: CanvasDocument): AgentNode[] {
	return document.nodes.filter((node) => node.kind === "agent");
}

/** Each behind those that it waits for; what waits for nothing stands as on the canvas. A canvas has no circles. */
function inOrder(document: CanvasDocument, before: ReadonlyMap<string, AgentNode[]>): AgentNode[] {
	const order = new Set<AgentNode>();
	const visit = (node: AgentNode) => {
		if (order.has(node)) return;
		for (const one of before.get(node.id) ?? []) visit(one);
		order.add(node);
	};
	const standing = agents(document).sort((a, b) => a.y - b.y || a.x - b.x || a.id.localeCompare(b.id));
	for (const node of standing) visit(node);
	return [...order];
}
