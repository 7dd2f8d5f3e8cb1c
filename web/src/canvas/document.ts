/** A canvas as data: what is saved, exported and run. Pure. */

/** Name and version of the exchange format; an import of another version is refused. */
export const FORMAT = "riverrun.canvas";
export const VERSION = 1;

export const LIMITS = {
	nodes: 2_000,
	edges: 8_000,
	text: 20_000,
	name: 120,
	/** Also fits into what the server takes as the name of a run in its chain, whatever the letters. */
	agentName: 60,
	iterations: 20_000,
	bytes: 4 << 20,
} as const;

export type Approval = "never" | "external" | "always";

export type AgentData = {
	/** What it is called; the page gives one to each that comes without. */
	name?: string;
	/** An agent type; null lets the supervisor choose. */
	agent: string | null;
	/** `{{input}}` stands for the answers of the agents before this one. */
	task: string;
	model?: string;
	maxIters?: number;
	approval?: Approval;
	session?: string;
};
export type ToolData = { tool: string };
export type CollectionData = { collection: string };
export type NoteData = { text: string };
export type GroupData = { title: string };

type At<K extends string, D> = {
	id: string;
	kind: K;
	x: number;
	y: number;
	width?: number;
	height?: number;
	/** The group that the node lies in; its place is then relative to the group's. */
	group?: string;
	data: D;
};
export type AgentNode = At<"agent", AgentData>;
export type CanvasNode =
	| AgentNode
	| At<"tool", ToolData>
	| At<"collection", CollectionData>
	| At<"note", NoteData>
	| At<"group", GroupData>;
export type NodeKind = CanvasNode["kind"];

export type CanvasEdge = { id: string; from: string; to: string };

export type CanvasDocument = {
	format: typeof FORMAT;
	version: typeof VERSION;
	name: string;
	namespace: string;
	nodes: CanvasNode[];
	edges: CanvasEdge[];
	/** Its id on the server, where it is kept in its namespace. It goes with undo and redo, and not into an export. */
	kept?: string;
	/** Tells it from other canvases that undo and redo lead to; nothing of it is kept or exported. */
	sheet?: number;
};

export function emptyCanvas(): CanvasDocument {
	return { format: FORMAT, version: VERSION, name: "Untitled", namespace: "default", nodes: [], edges: [] };
}

export function newId(prefix: string): string {
	return `${prefix}_${crypto.randomUUID().replaceAll("-", "").slice(0, 12)}`;
}

export function edgeId(from: string, to: string): string {
	return `${from}->${to}`;
}

export function nodeOf(document: CanvasDocument, id: string): CanvasNode | undefined {
	return document.nodes.find((node) => node.id === id);
}

export const CONNECTED = "they are connected";
export const CIRCLE = "that would be a circle: an agent can't wait for itself";

/** Why two nodes can't be connected whatever else is, in words for the user; null when they can. */
export function misfit(source: CanvasNode | undefined, target: CanvasNode | undefined): string | null {
	if (!source || !target) return "one of the nodes is gone";
	if (source.id === target.id) return "a node can't be connected to itself";
	if (target.kind !== "agent") return "only an agent takes an input";
	if (source.kind === "note" || source.kind === "group") return `a ${source.kind} gives nothing to an agent`;
	return null;
}

/** Why two nodes can't be connected, in words for the user; null when they can. */
export function refusal(document: CanvasDocument, from: string, to: string): string | null {
	const [source, target] = [nodeOf(document, from), nodeOf(document, to)];
	const reason = misfit(source, target);
	if (reason) return reason;
	if (document.edges.some((edge) => edge.from === from && edge.to === to)) return CONNECTED;
	if (source?.kind === "agent" && reaches(document, to, from)) return CIRCLE;
	if (document.edges.length >= LIMITS.edges) return `a canvas has at most ${LIMITS.edges} connections`;
	return null;
}

/** Whether `to` can be reached from `from` along the connections. */
export function reaches(document: CanvasDocument, from: string, to: string): boolean {
	const next = outgoing(document);
	const seen = new Set<string>();
	const open = [from];
	for (let at = open.pop(); at !== undefined; at = open.pop()) {
		if (at === to) return true;
		if (seen.has(at)) continue;
		seen.add(at);
		open.push(...(next.get(at) ?? []));
	}
	return false;
}

/** A connection that closes a circle; null when none does. Looks at each one once, however many there are. */
export function closing(document: CanvasDocument): { from: string; to: string } | null {
	const next = outgoing(document);
	const state = new Map<string, "open" | "done">();
	for (const begin of next.keys()) {
		const path = state.has(begin) ? [] : [{ id: begin, at: 0 }];
		if (path.length > 0) state.set(begin, "open");
		for (let last = path.at(-1); last; last = path.at(-1)) {
			const to = next.get(last.id)?.[last.at];
			last.at += 1;
			if (to === undefined) {
				state.set(last.id, "done");
				path.pop();
			} else if (state.get(to) === "open") return { from: last.id, to };
			else if (!state.has(to)) {
				state.set(to, "open");
				path.push({ id: to, at: 0 });
			}
		}
	}
	return null;
}

function outgoing(document: CanvasDocument): Map<string, string[]> {
	const next = new Map<string, string[]>();
	for (const { from, to } of document.edges) {
		const list = next.get(from);
		if (list) list.push(to);
		else next.set(from, [to]);
	}
	return next;
}

/** Removes nodes with all that hangs on them; what lay in a removed group stays, where it was. */
export function without(document: CanvasDocument, ids: ReadonlySet<string>): CanvasDocument {
	const groups = new Map(document.nodes.filter((n) => n.kind === "group" && ids.has(n.id)).map((n) => [n.id, n]));
	const nodes = document.nodes
		.filter((node) => !ids.has(node.id))
		.map((node) => {
			const group = node.group ? groups.get(node.group) : undefined;
			return group ? { ...node, group: undefined, x: node.x + group.x, y: node.y + group.y } : node;
		});
	return { ...document, nodes, edges: document.edges.filter((edge) => !ids.has(edge.from) && !ids.has(edge.to)) };
}

/** Where a node stands on the canvas, whatever group it lies in. */
export function placeOf(document: CanvasDocument, node: CanvasNode): { x: number; y: number } {
	const group = node.group ? nodeOf(document, node.group) : undefined;
	return { x: node.x + (group?.x ?? 0), y: node.y + (group?.y ?? 0) };
}

/** What is copied when these are: a group with what lies in it; what lies in a group that is not copied stands by itself. */
export function takenAlong(document: CanvasDocument, ids: ReadonlySet<string>) {
	const all = new Set(document.nodes.filter((n) => ids.has(n.id) || (n.group && ids.has(n.group))).map((n) => n.id));
	const nodes = document.nodes
		.filter((node) => all.has(node.id))
		.map((node) =>
			node.group && !all.has(node.group) ? { ...node, ...placeOf(document, node), group: undefined } : node,
		);
	return { nodes, edges: document.edges.filter((edge) => all.has(edge.from) && all.has(edge.to)) };
}

/** Copies of nodes and of the connections among them, with ids of their own, a little aside. */
export function copied(
	nodes: CanvasNode[],
	edges: CanvasEdge[],
	offset: number,
): { nodes: CanvasNode[]; edges: CanvasEdge[] } {
	const names = new Map(nodes.map((node) => [node.id, newId(node.kind)]));
	return {
		nodes: nodes.map((node) => {
			const group = node.group ? names.get(node.group) : undefined;
			const shift = group ? 0 : offset;
			return {
				...structuredClone(node),
				id: names.get(node.id) ?? node.id,
				group,
				x: node.x + shift,
				y: node.y + shift,
			};
		}),
		edges: edges.flatMap(({ from, to }) => {
			const [a, b] = [names.get(from), names.get(to)];
			return a && b ? [{ id: edgeId(a, b), from: a, to: b }] : [];
		}),
	};
}

/** Moves nodes to where they stand on the canvas, whatever groups they lie in. */
export function moved(document: CanvasDocument, places: Map<string, { x: number; y: number }>): CanvasDocument {
	return {
		...document,
		nodes: document.nodes.map((node) => {
			const place = places.get(node.id);
			if (!place) return node;
			const now = placeOf(document, node);
			return { ...node, x: node.x + place.x - now.x, y: node.y + place.y - now.y };
		}),
	};
}

export type Alignment = "left" | "center" | "right" | "top" | "middle" | "bottom";

/** Aligns nodes to the outermost one. `size` gives a node's size on the screen. */
export function aligned(
	nodes: CanvasNode[],
	how: Alignment,
	size: (id: string) => { width: number; height: number },
): Map<string, { x: number; y: number }> {
	const boxes = nodes.map((node) => ({ node, ...size(node.id) }));
	const left = Math.min(...boxes.map((b) => b.node.x));
	const right = Math.max(...boxes.map((b) => b.node.x + b.width));
	const top = Math.min(...boxes.map((b) => b.node.y));
	const bottom = Math.max(...boxes.map((b) => b.node.y + b.height));
	const place = ({ node, width, height }: (typeof boxes)[number]) => {
		switch (how) {
			case "left":
				return { x: left, y: node.y };
			case "center":
				return { x: (left + right - width) / 2, y: node.y };
			case "right":
				return { x: right - width, y: node.y };
			case "top":
				return { x: node.x, y: top };
			case "middle":
				return { x: node.x, y: (top + bottom - height) / 2 };
			case "bottom":
				return { x: node.x, y: bottom - height };
		}
	};
	return new Map(boxes.map((box) => [box.node.id, place(box)]));
}

export type Axis = "x" | "y";

/** Gives nodes equal gaps between the two outermost ones. `size` gives a node's size on the screen. */
export function distributed(
	nodes: CanvasNode[],
	axis: Axis,
	size: (id: string) => { width: number; height: number },
): Map<string, { x: number; y: number }> {
	const length = (node: CanvasNode) => (axis === "x" ? size(node.id).width : size(node.id).height);
	const ordered = [...nodes].sort((a, b) => a[axis] - b[axis]);
	const [first, last] = [ordered[0], ordered.at(-1)];
	if (!first || !last || ordered.length < 3) return new Map();
	const filled = ordered.reduce((sum, node) => sum + length(node), 0);
	const gap = (last[axis] + length(last) - first[axis] - filled) / (ordered.length - 1);
	let at = first[axis];
	return new Map(
		ordered.map((node) => {
			const place = { x: node.x, y: node.y, [axis]: at };
			at += length(node) + gap;
			return [node.id, place];
		}),
	);
}
