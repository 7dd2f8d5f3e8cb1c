/** What a large canvas costs apart from drawing it: `npm run bench`. Each must stay well below a frame of 16 ms. */

import { bench, describe } from "vitest";
import { aligned, type CanvasDocument, edgeId, emptyCanvas, LIMITS, moved, refusal, takenAlong } from "./document";
import { exportCanvas, importCanvas } from "./exchange";
import { chainOf, notRunnable } from "./plan";

const NODES = 500;

/** Agents in rows of ten, each row a chain, and every agent with a tool of its own. */
function large(): CanvasDocument {
	const agents = Array.from({ length: NODES / 2 }, (_, n) => ({
		id: `a${n}`,
		kind: "agent" as const,
		x: (n % 10) * 400,
		y: Math.floor(n / 10) * 300,
		data: { agent: "react", task: "{{input}} go on" },
	}));
	const tools = agents.map((agent, n) => ({
		id: `t${n}`,
		kind: "tool" as const,
		x: agent.x - 200,
		y: agent.y,
		data: { tool: "clock" },
	}));
	const pairs = agents.flatMap((agent, n): [string, string][] =>
		n % 10 === 9
			? [[`t${n}`, agent.id]]
			: [
					[`t${n}`, agent.id],
					[agent.id, `a${n + 1}`],
				],
	);
	const edges = pairs.map(([from, to]) => ({ id: edgeId(from, to), from, to }));
	return { ...emptyCanvas(), nodes: [...agents, ...tools], edges };
}

describe(`a canvas of ${NODES} nodes`, () => {
	const document = large();
	const last = document.nodes.find((node) => node.id === "a249");
	const text = exportCanvas(document);
	const ids = new Set(document.nodes.map((node) => node.id));
	bench("is asked whether two nodes may be connected", () => void refusal(document, "a249", "a0"));
	bench("is asked whether its longest chain can run", () => {
		if (last?.kind === "agent") notRunnable(document, last);
	});
	bench("gives a chain", () => void chainOf(document, "a249"));
	bench(
		"is dragged as a whole",
		() => void moved(document, new Map(document.nodes.map((n) => [n.id, { x: 1, y: 2 }]))),
	);
	bench("is aligned", () => void aligned(document.nodes, "left", () => ({ width: 320, height: 160 })));
	bench("is copied", () => void takenAlong(document, ids));
	bench("is exported, as autosave does", () => void exportCanvas(document));
	bench("is imported", () => void importCanvas(text));
});

describe("the largest canvas that there may be", () => {
	const nodes = Array.from({ length: LIMITS.nodes }, (_, n) => ({
		id: `a${n}`,
		kind: "agent" as const,
		x: 0,
		y: 0,
		data: { agent: "react", task: "{{input}}" },
	}));
	const edges = nodes.flatMap((_, at) =>
		[1, 2, 3, 4]
			.filter((back) => back <= at)
			.map((back) => ({ id: `${at}-${back}`, from: `a${at - back}`, to: `a${at}` })),
	);
	const text = exportCanvas({ ...emptyCanvas(), nodes, edges });
	bench("is imported", () => void importCanvas(text));
});
