// A large canvas in the exchange format: agents in rows of twelve, each row a chain, and every agent with a tool of its own.
const ACROSS = 12;

export function large(nodes) {
	const agents = Array.from({ length: nodes / 2 }, (_, n) => ({
		id: `a${n}`,
		kind: "agent",
		x: (n % ACROSS) * 560,
		y: Math.floor(n / ACROSS) * 220,
		data: { agent: "react", task: "{{input}} go on" },
	}));
	const tools = agents.map(({ x, y }, n) => ({ id: `t${n}`, kind: "tool", x: x - 200, y, data: { tool: "clock" } }));
	const edges = agents.flatMap(({ id }, n) => {
		const own = [{ from: `t${n}`, to: id }];
		return n % ACROSS === ACROSS - 1 ? own : [...own, { from: id, to: `a${n + 1}` }];
	});
	const known = new Set([...agents, ...tools].map((node) => node.id));
	return {
		format: "riverrun.canvas",
		version: 1,
		name: "Large",
		namespace: "default",
		nodes: [...agents, ...tools],
		edges: edges.filter(({ from, to }) => known.has(from) && known.has(to)),
	};
}
