"use client";

import {
	Background,
	type Connection,
	Controls,
	type Edge,
	MarkerType,
	MiniMap,
	type NodeChange,
	Panel,
	ReactFlow,
	ReactFlowProvider,
	SelectionMode,
	useReactFlow,
	useStore,
	useStoreApi,
} from "@xyflow/react";
import clsx from "clsx";
import { type CSSProperties, type DragEvent, useCallback, useEffect, useMemo, useRef, useState } from "react";
import { useShallow } from "zustand/react/shallow";
import { hasEnded } from "@/runs/fold";
import { useRuns } from "@/runs/store";
import { homeNamespace, ownerOf, useSession } from "@/session/store";
import { autosave } from "./autosave";
import { Beginnings } from "./Beginnings";
import { meant, reachOf, type Start, snapRadius } from "./connecting";
import { type CanvasDocument, type CanvasNode, nodeOf, refusal } from "./document";
import { isDraft, readDragged } from "./dragged";
import { regrouped } from "./groups";
import { Inspector } from "./Inspector";
import { Kept } from "./Kept";
import { useKeyboard } from "./keyboard";
import { movesOf, placed } from "./moves";
import { type FlowNode, NODE_TYPES } from "./nodes";
import { drawnOf, isFar } from "./nodes/far";
import { SIZES } from "./nodes/sizes";
import { noticeMs } from "./notices";
import { Palette } from "./Palette";
import { Search } from "./Search";
import { useCanvas } from "./store";
import { Toolbar } from "./Toolbar";
import { takeFile } from "./take";
import { intoView, lift, uncovered } from "./view";

const ARROW = { type: MarkerType.ArrowClosed, width: 18, height: 18 } as const;
const OVERVIEW = { width: 150, height: 100 };

export function Canvas() {
	return (
		<ReactFlowProvider>
			<Workspace />
		</ReactFlowProvider>
	);
}

function Workspace() {
	const document = useCanvas((s) => s.history.present);
	const selected = useCanvas((s) => s.selected);
	const notice = useCanvas((s) => s.notice);
	const shown = useCanvas((s) => s.shown);
	const home = useSession((s) => homeNamespace(s.session));
	const owner = useSession(ownerOf);
	const { load, connect, remove, select, amend, nudge, settle, add, say } = useCanvas.getState();
	const flow = useReactFlow();
	const view = useStoreApi();
	const [searching, setSearching] = useState(false);
	const beforeDrag = useRef<CanvasDocument | null>(null);
	const dragged = useRef<ReadonlySet<string>>(new Set());
	/** The handle that was tapped or clicked first of two; none as soon as they are connected. */
	const tapped = useRef<Start | null>(null);
	useKeyboard(useCallback(() => setSearching(true), []));

	useEffect(() => {
		// Whose it is says the server. Nobody is shown what somebody else has drawn in this browser.
		if (owner === null) return;
		load(owner);
		return autosave();
	}, [load, owner]);

	useEffect(() => {
		// A canvas that nobody has begun is of the namespace that the token is for.
		amend((now) => (now.nodes.length === 0 && now.namespace === "default" ? { ...now, namespace: home } : now));
	}, [amend, home]);

	useEffect(() => {
		if (!notice) return;
		const timer = setTimeout(() => say(null), noticeMs(notice));
		return () => clearTimeout(timer);
	}, [notice, say]);

	useEffect(() => {
		if (shown === 0) return;
		// The settings of what was selected have gone with it: React Flow hears of the place they leave only with the next frame.
		const { domNode } = view.getState();
		if (domNode) view.setState({ width: domNode.clientWidth, height: domNode.clientHeight });
		void flow.fitView({ maxZoom: 1, padding: 0.15 }).then(() => toTop(flow));
	}, [flow, view, shown]);

	const far = useStore(isFar);
	const reach = useStore(reachOf);
	const drawn = drawnOf(document.nodes.length, far);
	const nodes = useFlowNodes(document, selected, far);
	const working = useWorking();
	const edges = useMemo<Edge[]>(
		() =>
			document.edges.map((edge) => ({
				id: edge.id,
				source: edge.from,
				target: edge.to,
				selected: selected.has(edge.id),
				animated: working.includes(edge.to),
				// What is too small to be seen is not worth drawing.
				...(far ? { interactionWidth: 0 } : { markerEnd: ARROW }),
			})),
		[document.edges, selected, working, far],
	);

	const endDrag = useCallback(() => {
		if (!beforeDrag.current) return;
		amend((now) => regrouped(now, dragged.current));
		settle(beforeDrag.current);
		beforeDrag.current = null;
	}, [amend, settle]);

	const onNodesChange = useCallback(
		(changes: NodeChange<FlowNode>[]) => {
			const moves = movesOf(changes);
			const change = (now: CanvasDocument) => placed(now, moves);
			const { moved, sized, ends } = moves;
			// A drag is one step when it ends; keys move what is selected without a drag.
			if (moved.size > 0 && !beforeDrag.current) nudge(`places of ${[...moved.keys()].join(" ")}`, change);
			else if (moved.size > 0 || sized.size > 0) amend(change);
			if (ends) endDrag();
			const picks = changes.filter((c) => c.type === "select");
			if (picks.length > 0) {
				const next = new Set(useCanvas.getState().selected);
				for (const pick of picks) pick.selected ? next.add(pick.id) : next.delete(pick.id);
				select(next);
			}
		},
		[amend, nudge, select, endDrag],
	);

	const isValidConnection = useCallback(
		(link: Connection | Edge) => refusal(useCanvas.getState().history.present, link.source, link.target) === null,
		[],
	);

	const drop = (event: DragEvent) => {
		const file = event.dataTransfer.files[0];
		if (file) {
			// Else the browser would leave the page for the file.
			event.preventDefault();
			void takeFile(file);
			return;
		}
		if (!isDraft(event.dataTransfer)) return;
		event.preventDefault();
		const node = readDragged(event.dataTransfer);
		if (!node) {
			say("what was dropped is no node");
			return;
		}
		const { x, y } = flow.screenToFlowPosition({ x: event.clientX, y: event.clientY });
		add({ ...node, x, y } as Omit<CanvasNode, "id">);
	};

	return (
		<div className="relative flex h-full">
			<Palette />
			<div className="flex min-w-0 flex-1 flex-col">
				<Toolbar onSearch={() => setSearching(true)} />
				<div className="min-h-0 flex-1" role="application" aria-label="canvas">
					<ReactFlow<FlowNode>
						nodes={nodes}
						edges={edges}
						nodeTypes={NODE_TYPES}
						onNodesChange={onNodesChange}
						onEdgesChange={(changes) => {
							const next = new Set(useCanvas.getState().selected);
							for (const c of changes) if (c.type === "select") c.selected ? next.add(c.id) : next.delete(c.id);
							select(next);
						}}
						onNodeDragStart={(_, __, together) => {
							beforeDrag.current = useCanvas.getState().history.present;
							dragged.current = new Set(together.map((node) => node.id));
						}}
						onNodeDragStop={endDrag}
						// The settings of the node come with the next frame, and may lie over it.
						onNodeClick={(event, { id }) => {
							// A click in a dialog that a node has opened comes here, too.
							const isOnNode = event.target instanceof Element && event.currentTarget.contains(event.target);
							if (isOnNode) requestAnimationFrame(() => bringIntoView(flow, id));
						}}
						onConnect={({ source, target }) => {
							tapped.current = null;
							connect(source, target);
						}}
						onConnectEnd={(event, link) => {
							const [from, to] = [link.fromNode?.id, link.toNode?.id];
							if (from && to) {
								if (!link.isValid) say(notConnected(from, to));
								return;
							}
							const ends = link.fromHandle && meant(document, link.fromHandle, nodeUnder(event));
							if (ends) connect(ends.from, ends.to);
						}}
						onClickConnectStart={(_, { nodeId, handleType }) => {
							tapped.current = nodeId && handleType ? { nodeId, type: handleType } : null;
						}}
						onClickConnectEnd={(event) => {
							const ends = tapped.current && meant(document, tapped.current, nodeUnder(event));
							tapped.current = null;
							if (ends) connect(ends.from, ends.to);
						}}
						isValidConnection={isValidConnection}
						connectionRadius={snapRadius(reach)}
						style={{ "--reach": reach } as CSSProperties}
						onDelete={({ nodes: gone, edges: cut }) => remove([...gone, ...cut].map((one) => one.id))}
						onDrop={drop}
						onDragOver={(event) => {
							const { dataTransfer } = event;
							if (isDraft(dataTransfer) || dataTransfer.types.includes("Files")) event.preventDefault();
						}}
						deleteKeyCode={["Delete", "Backspace"]}
						multiSelectionKeyCode={["Shift", "Meta", "Control"]}
						selectionMode={SelectionMode.Partial}
						onlyRenderVisibleElements={drawn === "visible"}
						minZoom={0.1}
						fitView
						fitViewOptions={{ maxZoom: 1 }}
						proOptions={{ hideAttribution: false }}
					>
						{!far && <Background gap={24} />}
						{document.nodes.length > 0 && (
							<MiniMap
								pannable
								zoomable
								ariaLabel="overview"
								style={OVERVIEW}
								nodeClassName={(node) => node.type ?? ""}
							/>
						)}
						<Controls showInteractive={false} />
						{document.nodes.length === 0 && (
							<Panel position="top-center" className="mt-16! w-full max-w-md px-4">
								<p className="mb-3 text-center text-soft">
									Drag an agent from the left onto the canvas, or begin with one of these.
								</p>
								<Beginnings />
							</Panel>
						)}
						<Panel position="bottom-center">
							<output
								className={clsx("block max-w-xl break-words", notice && "rounded bg-ink px-3 py-1.5 text-ground")}
							>
								{notice}
							</output>
						</Panel>
					</ReactFlow>
				</div>
			</div>
			<Inspector />
			<Search open={searching} onClose={() => setSearching(false)} />
			<Kept />
		</div>
	);
}

/** The nodes whose runs go on. */
function useWorking(): string[] {
	const runOf = useCanvas((s) => s.runOf);
	return useRuns(
		useShallow((s) =>
			Object.entries(runOf).flatMap(([node, runId]) => {
				const run = s.runs[runId];
				return run && !hasEnded(run) && run.status === "running" ? [node] : [];
			}),
		),
	);
}

/** Flow nodes of the document. A node that did not change keeps its object, so that only what changed is drawn anew. */
function useFlowNodes(document: CanvasDocument, selected: ReadonlySet<string>, far: boolean): FlowNode[] {
	const kept = useRef(new Map<string, FlowNode>());
	return useMemo(() => {
		const next = new Map<string, FlowNode>();
		// A parent must stand before what lies in it.
		const ordered = [...document.nodes].sort((a, b) => Number(b.kind === "group") - Number(a.kind === "group"));
		for (const node of ordered) {
			const is = selected.has(node.id);
			const before = kept.current.get(node.id);
			const same = before?.data.node === node && before.data.far === far && before.selected === is;
			next.set(node.id, same ? before : flowNode(node, is, far));
		}
		kept.current = next;
		return [...next.values()];
	}, [document.nodes, selected, far]);
}

function flowNode(node: CanvasNode, selected: boolean, far: boolean): FlowNode {
	const group = node.kind === "group";
	return {
		id: node.id,
		type: node.kind,
		position: { x: node.x, y: node.y },
		data: { node, far },
		selected,
		parentId: node.group,
		measured: node.width && node.height ? { width: node.width, height: node.height } : undefined,
		// What is out of view is not drawn and so not measured; the overview and the view of everything count it, too.
		...SIZES[node.kind],
		...(group ? { width: node.width, height: node.height, zIndex: -1 } : {}),
	};
}

type Flow = ReturnType<typeof useReactFlow>;

/** A canvas that fits begins at the top of the view. */
function toTop(flow: Flow): void {
	const nodes = flow.getNodes();
	if (nodes.length === 0) return;
	const { x, y, zoom } = flow.getViewport();
	const up = lift(flow.getNodesBounds(nodes).y * zoom + y, zoom);
	if (up > 0) void flow.setViewport({ x, y: y - up, zoom });
}

/** Moves the view where a part of the node lies outside of it or below the settings. */
function bringIntoView(flow: Flow, id: string): void {
	const rect = (selector: string) => window.document.querySelector(selector)?.getBoundingClientRect();
	const [box, canvas] = [rect(`.react-flow__node[data-id="${CSS.escape(id)}"]`), rect(".react-flow")];
	if (!box || !canvas) return;
	const moved = intoView(box, uncovered(canvas, rect(`aside[aria-label="settings"]`)));
	if (moved.x === 0 && moved.y === 0) return;
	const { x, y, zoom } = flow.getViewport();
	void flow.setViewport({ x: x + moved.x, y: y + moved.y, zoom });
}

/** The node on which the mouse or a finger let go. */
function nodeUnder(event: MouseEvent | TouchEvent): string | undefined {
	const at = "changedTouches" in event ? event.changedTouches[0] : event;
	const element = at && window.document.elementFromPoint(at.clientX, at.clientY);
	return element?.closest<HTMLElement>(".react-flow__node")?.dataset.id;
}

/** Which way round a connection was dragged does not matter to the reason. */
function notConnected(from: string, to: string): string | null {
	const now = useCanvas.getState().history.present;
	if (!nodeOf(now, from) || !nodeOf(now, to)) return null;
	const reason = refusal(now, from, to);
	return reason && `not connected: ${reason}`;
}
