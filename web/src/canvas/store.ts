"use client";

/** The canvas on the screen: the document with its history, what is selected, and which run belongs to which node. */

import { create } from "zustand";
import { type CanvasEntry, describe, Offline } from "@/api/client";
import { isGoing, useRuns } from "@/runs/store";
import { count } from "@/ui/words";
import {
	type AgentData,
	type AgentNode,
	type Alignment,
	type Axis,
	aligned,
	type CanvasDocument,
	type CanvasEdge,
	type CanvasNode,
	copied,
	distributed,
	edgeId,
	emptyCanvas,
	LIMITS,
	moved,
	newId,
	nodeOf,
	placeOf,
	refusal,
	takenAlong,
	without,
} from "./document";
import * as history from "./history";
import { keyOf } from "./kept";
import { named, namedApart, nameOf, partNames } from "./names";
import { chainTo, notRunnable, rowOf } from "./plan";
import { type Aside, adopted, begun, NOTHING_RAN, type Ran, refused, settled, sheetOf } from "./ran";
import { type Reopened, readSaved } from "./saved";
import { free, notTogether, rowsOf, told } from "./together";

const COPY_OFFSET = 32;
/** What the key of a start begins with that is for a whole row, however many ends it has. */
const WHOLE_ROW = "row-";
let burst: history.Burst<CanvasDocument> | null = null;
/** Last node of a row → its start that nobody answered. It may be under way: the same row is asked for under the same key again. */
const unanswered = new Map<string, { key: string; asked: string }>();
let sheets = 0;

type CanvasState = Ran & {
	history: history.History<CanvasDocument>;
	/** Runs of the canvases that undo and redo lead to. */
	aside: Aside;
	selected: ReadonlySet<string>;
	/** Namespace and id of a canvas of the server → the revision of it that was seen last. */
	revisions: Record<string, number>;
	clipboard: { nodes: CanvasNode[]; edges: CanvasEdge[] };
	notice: string | null;
	/** Whose canvas it is, by the name of their token; null until it is loaded. */
	owner: string | null;
	/** How often another canvas came onto the screen: the view then goes to where it is. */
	shown: number;

	/** Begins with what this browser keeps of its owner; whoever comes back from another page finds all as it was. */
	load: (owner: string) => void;
	replace: (document: CanvasDocument) => void;
	/** Shows a canvas that another tab has kept, with its runs. */
	reopen: (canvas: Reopened) => void;
	/** The server keeps the canvas that is on the screen, at this revision. */
	keptAs: (entry: Pick<CanvasEntry, "namespace" | "canvas_id" | "revision">) => void;
	edit: (change: (document: CanvasDocument) => CanvasDocument) => void;
	amend: (change: (document: CanvasDocument) => CanvasDocument) => void;
	/** A change by a key that is pressed over and over: a burst of them is one step of the history. `of` says what it changes. */
	nudge: (of: string, change: (document: CanvasDocument) => CanvasDocument) => void;
	/** Makes what was amended since `before` one step of the history. */
	settle: (before: CanvasDocument) => void;
	undo: () => void;
	redo: () => void;
	select: (ids: Iterable<string>) => void;
	say: (notice: string | null) => void;

	add: (node: Omit<CanvasNode, "id">) => void;
	connect: (from: string, to: string) => void;
	change: (id: string, data: Partial<AgentData> & Record<string, unknown>) => void;
	remove: (ids: Iterable<string>) => void;
	group: () => void;
	/** Dissolves the groups that are selected; what lies in them stays. */
	ungroup: () => void;
	/** Aligns what is selected, or gives it equal gaps along an axis. */
	arrange: (how: Alignment | Axis) => void;
	copy: () => void;
	cut: () => void;
	paste: () => void;

	run: (id: string) => Promise<void>;
	stop: (id: string) => Promise<void>;
	/** Runs every agent that has a task, rows as rows, all at once. What runs already is left alone. */
	runAll: () => Promise<void>;
	/** Stops all that runs on this canvas. */
	stopAll: () => Promise<void>;
	/** Goes on from a step of the node's run, in a run of its own. */
	fork: (id: string, seq: number) => Promise<void>;
	adopt: (id: string, runId: string) => void;
};

export const useCanvas = create<CanvasState>((set, get) => {
	const present = () => get().history.present;
	const edit = (change: (document: CanvasDocument) => CanvasDocument) =>
		set((state) => ({ history: history.record(state.history, change(state.history.present)) }));
	/** Changes what was run on a canvas, which may not be on the screen any more. */
	const ran = (sheet: number, change: (ran: Ran) => Ran) =>
		set((state) =>
			sheetOf(state.history.present) === sheet
				? change(ranOn(state))
				: { aside: { ...state.aside, [sheet]: change(state.aside[sheet] ?? NOTHING_RAN) } },
		);
	/** The agents that a start is for, which a reload asks for again by the last of them and the start's key. */
	const rowFor = (id: string, chain: string): AgentNode[] => {
		if (!chain.startsWith(WHOLE_ROW)) return chainTo(present(), id);
		return rowsOf(present()).rows.find((row) => row.at(-1)?.id === id) ?? [];
	};
	/** Starts a chain, which the server then carries on: a start that is repeated under its key starts nothing. */
	const begin = async (id: string, chain: string, row = rowFor(id, chain)) => {
		const sheet = sheetOf(present());
		const asked = rowOf(present(), row);
		ran(sheet, (now) => begun(now, id, chain));
		unanswered.delete(id);
		try {
			const runs = await useRuns.getState().start(asked, chain);
			const started = [...partNames(row)].flatMap(([node, name]) => (runs[name] ? [[node, runs[name]] as const] : []));
			ran(sheet, (now) => started.reduce((sum, [node, runId]) => adopted(sum, node, runId), now));
		} catch (error) {
			if (error instanceof Offline) unanswered.set(id, { key: chain, asked: JSON.stringify(asked) });
			ran(sheet, (now) => refused(now, id, describe(error)));
		}
		ran(sheet, (now) => settled(now, id));
	};
	/** The key of a start: the one of the same start before, if nobody answered that. */
	const keyFor = (row: AgentNode[], prefix = "") => {
		const before = unanswered.get(row.at(-1)?.id ?? "");
		const isSame = before?.key.startsWith(WHOLE_ROW) === (prefix === WHOLE_ROW);
		if (before && isSame && before.asked === JSON.stringify(rowOf(present(), row))) return before.key;
		return prefix + crypto.randomUUID();
	};
	/** The nodes that a run goes on for, or a start is under way for. */
	const busyNodes = (): Set<string> => {
		const { runOf, chains } = get();
		const { runs } = useRuns.getState();
		const going = Object.keys(runOf).filter((id) => isGoing(runs[runOf[id] ?? ""]));
		const starting = Object.entries(chains).flatMap(([id, chain]) => rowFor(id, chain).map((node) => node.id));
		return new Set([...going, ...starting]);
	};
	const selectedNodes = () => present().nodes.filter((node) => get().selected.has(node.id));

	return {
		history: history.begin(emptyCanvas()),
		...NOTHING_RAN,
		aside: {},
		selected: new Set(),
		revisions: {},
		clipboard: { nodes: [], edges: [] },
		notice: null,
		owner: null,
		shown: 0,

		load(owner) {
			if (get().owner !== null) return;
			set({ owner });
			const saved = readSaved(owner, (why) => set({ notice: why }));
			if (!saved) return;
			const { document, runs, before, chains, revisions } = saved;
			set({
				history: history.begin(named(document)),
				runOf: runs,
				runBefore: before,
				chains,
				revisions,
				selected: new Set(),
			});
			for (const runId of Object.values(runs)) useRuns.getState().follow(runId);
			for (const [id, chain] of Object.entries(chains)) void begin(id, chain);
		},

		replace(document) {
			sheets += 1;
			const next = { ...named(document), sheet: sheets };
			set((state) => ({ ...turnedTo(state, history.record(state.history, next)), selected: new Set() }));
		},

		reopen({ document, runs, before, revisions }) {
			get().replace(document);
			// A start that is under way is the other tab's to ask for again.
			set((state) => ({ runOf: runs, runBefore: before, revisions: { ...state.revisions, ...revisions } }));
			for (const runId of Object.values(runs)) useRuns.getState().follow(runId);
		},

		keptAs({ namespace, canvas_id, revision }) {
			// What is typed while it is being saved stays; undo goes on to what was there before.
			get().amend((now) => (now.kept === canvas_id ? now : { ...now, kept: canvas_id }));
			set((state) => ({ revisions: { ...state.revisions, [keyOf(namespace, canvas_id)]: revision } }));
		},

		edit,
		amend: (change) => set((state) => ({ history: history.amend(state.history, change(state.history.present)) })),
		nudge: (of, change) =>
			set((state) => {
				const next = change(state.history.present);
				const done = history.recordBurst(state.history, next, of, Date.now(), burst);
				burst = done.burst;
				return { history: done.history };
			}),
		settle: (before) =>
			set((state) => {
				const after = state.history.present;
				return { history: history.record({ ...state.history, present: before }, after) };
			}),
		undo: () => set((state) => turnedTo(state, history.undo(state.history))),
		redo: () => set((state) => turnedTo(state, history.redo(state.history))),
		select: (ids) => set({ selected: new Set(ids) }),
		say: (notice) => set({ notice }),

		add(node) {
			if (present().nodes.length >= LIMITS.nodes) {
				set({ notice: `a canvas has at most ${LIMITS.nodes} nodes` });
				return;
			}
			const added = { ...node, id: newId(node.kind) } as CanvasNode;
			edit((document) => ({ ...document, nodes: [...document.nodes, ...namedApart(document, [added])] }));
			set({ selected: new Set([added.id]) });
		},

		connect(from, to) {
			const reason = refusal(present(), from, to);
			if (reason) {
				set({ notice: `not connected: ${reason}` });
				return;
			}
			edit((document) => ({ ...document, edges: [...document.edges, { id: edgeId(from, to), from, to }] }));
		},

		change(id, data) {
			get().nudge(`data of ${id}`, (document) => ({
				...document,
				nodes: document.nodes.map((node) =>
					node.id === id ? ({ ...node, data: { ...node.data, ...data } } as CanvasNode) : node,
				),
			}));
		},

		remove(ids) {
			const gone = new Set(ids);
			edit((document) => {
				const left = without(document, gone);
				return { ...left, edges: left.edges.filter((edge) => !gone.has(edge.id)) };
			});
			// Who cuts an edge in a node's settings goes on there.
			set({ selected: new Set([...get().selected].filter((id) => !gone.has(id))) });
		},

		group() {
			const nodes = selectedNodes().filter((node) => node.kind !== "group" && !node.group);
			if (nodes.length < 2) {
				set({ notice: "select two or more nodes to group them" });
				return;
			}
			const x = Math.min(...nodes.map((node) => node.x)) - 24;
			const y = Math.min(...nodes.map((node) => node.y)) - 48;
			const width = Math.max(...nodes.map((node) => node.x + (node.width ?? 320))) - x + 24;
			const height = Math.max(...nodes.map((node) => node.y + (node.height ?? 160))) - y + 24;
			const id = newId("group");
			const inside = new Set(nodes.map((node) => node.id));
			edit((document) => ({
				...document,
				nodes: [
					{ id, kind: "group", x, y, width, height, data: { title: "Group" } },
					...document.nodes.map((node) =>
						inside.has(node.id) ? { ...node, group: id, x: node.x - x, y: node.y - y } : node,
					),
				],
			}));
			set({ selected: new Set([id]) });
		},

		ungroup() {
			const groups = selectedNodes().filter((node) => node.kind === "group");
			if (groups.length === 0) set({ notice: "select a group to dissolve it" });
			else get().remove(groups.map((node) => node.id));
		},

		arrange(how) {
			const { selected } = get();
			const document = present();
			// What lies in a group that is selected, too, moves with it.
			const nodes = selectedNodes().filter((node) => !node.group || !selected.has(node.group));
			const least = how === "x" || how === "y" ? 3 : 2;
			if (nodes.length < least) {
				set({ notice: `select ${least} or more nodes to arrange them` });
				return;
			}
			const size = (id: string) => {
				const { width = 0, height = 0 } = nodeOf(document, id) ?? {};
				return { width, height };
			};
			const standing = nodes.map((node) => ({ ...node, ...placeOf(document, node) }) as CanvasNode);
			const places = how === "x" || how === "y" ? distributed(standing, how, size) : aligned(standing, how, size);
			edit((now) => moved(now, places));
		},

		copy() {
			const clipboard = takenAlong(present(), get().selected);
			const copied = clipboard.nodes.length;
			set({ clipboard, notice: copied > 0 ? `copied ${count(copied, "node")}` : "nothing is selected" });
		},

		cut() {
			const { selected } = get();
			get().copy();
			const inside = present().nodes.filter((node) => node.group && selected.has(node.group));
			if (get().clipboard.nodes.length > 0) get().remove([...selected, ...inside.map((node) => node.id)]);
		},

		paste() {
			const { clipboard } = get();
			if (present().nodes.length + clipboard.nodes.length > LIMITS.nodes) {
				set({ notice: `a canvas has at most ${LIMITS.nodes} nodes` });
				return;
			}
			if (present().edges.length + clipboard.edges.length > LIMITS.edges) {
				set({ notice: `a canvas has at most ${LIMITS.edges} connections` });
				return;
			}
			const { nodes, edges } = copied(clipboard.nodes, clipboard.edges, COPY_OFFSET);
			edit((document) => ({
				...document,
				nodes: [...document.nodes, ...namedApart(document, nodes)],
				edges: [...document.edges, ...edges],
			}));
			set({ selected: new Set(nodes.map((node) => node.id)) });
		},

		async run(id) {
			const document = present();
			const node = nodeOf(document, id);
			if (node?.kind !== "agent") return;
			// A second click before the first answer, a key that is held down, or the button in the settings: one run is enough.
			if (busyNodes().has(id)) {
				set({ notice: `${nameOf(node)} runs already: stop it first` });
				return;
			}
			const reason = notRunnable(document, node);
			if (reason) {
				ran(sheetOf(document), (now) => refused(now, id, reason));
				return;
			}
			await begin(id, keyFor(chainTo(document, id)));
		},

		async stop(id) {
			// A row is one chain, and all of it leads to its last agent: it is stopped as a whole.
			const runId = get().runOf[id];
			if (runId) await useRuns.getState().stop(runId);
		},

		async runAll() {
			const { rows, idle } = rowsOf(present());
			const started = free(rows, busyNodes());
			const reason = notTogether(started);
			if (reason) {
				set({ notice: reason });
				return;
			}
			set({ notice: told(started, rows.length - started.length, idle.length) });
			// All of them are marked as starting before the first answer is there.
			await Promise.all(started.map((row) => begin(row.at(-1)?.id ?? "", keyFor(row, WHOLE_ROW), row)));
		},

		async stopAll() {
			const { runs, stopAll } = useRuns.getState();
			await stopAll(Object.values(get().runOf).filter((runId) => isGoing(runs[runId])));
		},

		async fork(id, seq) {
			const runId = get().runOf[id];
			if (!runId) return;
			const sheet = sheetOf(present());
			try {
				const made = await useRuns.getState().fork(runId, seq);
				useRuns.getState().follow(made);
				ran(sheet, (now) => adopted(now, id, made));
			} catch (error) {
				ran(sheet, (now) => refused(now, id, describe(error)));
			}
		},

		adopt: (id, runId) => ran(sheetOf(present()), (now) => adopted(now, id, runId)),
	};
});

function ranOn({ runOf, runBefore, chains, problems }: Ran): Ran {
	return { runOf, runBefore, chains, problems };
}

/** The canvas that the history has there; where it is another one, its runs come along, those of this one are put aside, and the view goes to it. */
function turnedTo(state: CanvasState, next: history.History<CanvasDocument>): Partial<CanvasState> {
	const [from, to] = [sheetOf(state.history.present), sheetOf(next.present)];
	if (from === to) return { history: next };
	const reached = new Set([...next.past, ...next.future].map(sheetOf));
	const known = Object.entries({ ...state.aside, [from]: ranOn(state) });
	const aside: Aside = Object.fromEntries(known.filter(([sheet]) => reached.has(Number(sheet))));
	return { history: next, aside, ...(state.aside[to] ?? NOTHING_RAN), shown: state.shown + 1 };
}
