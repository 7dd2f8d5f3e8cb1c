"use client";

import { useReactFlow } from "@xyflow/react";
import { BookOpen, Bot, PanelLeftClose, PanelLeftOpen, Route, StickyNote, Wrench } from "lucide-react";
import Link from "next/link";
import { type ReactNode, useState } from "react";
import type { AgentEntry, CollectionView, ToolEntry } from "@/api/client";
import { usePolled } from "@/api/polling";
import type { Items } from "@/api/shapes";
import { Button, IconButton, Input, Loading, Refused } from "@/ui";
import { count } from "@/ui/words";
import type { CanvasNode } from "./document";
import { DRAG_TYPE, type Draft } from "./dragged";
import { SIZES } from "./nodes/sizes";
import { freePlace } from "./place";
import { useCanvas } from "./store";

const EVERY_MS = 15_000;
/** How far from the corner of what is seen a node is put that was not dragged. */
const MARGIN_PX = 40;

/** What can be put on the canvas, from the live API. Empty while the backend is away. */
export function Palette() {
	const namespace = useCanvas((s) => s.history.present.namespace);
	const query = `?namespace=${encodeURIComponent(namespace)}`;
	const agents = usePolled<Items<AgentEntry>>("/agents", EVERY_MS);
	const tools = usePolled<Items<ToolEntry>>(`/tools${query}`, EVERY_MS);
	const collections = usePolled<Items<CollectionView>>(`/collections${query}`, EVERY_MS);
	const [open, setOpen] = useState(true);
	const [sought, setSought] = useState("");
	const words = sought.trim().toLowerCase();
	const wanted = (...said: string[]) => said.some((one) => one.toLowerCase().includes(words));
	if (!open) {
		return (
			<aside aria-label="palette" className="shrink-0 border-line border-r bg-surface p-1">
				<IconButton label="show the palette" onClick={() => setOpen(true)}>
					<PanelLeftOpen size={16} aria-hidden />
				</IconButton>
			</aside>
		);
	}
	const fold = (
		<IconButton label="hide the palette" className="px-1.5!" onClick={() => setOpen(false)}>
			<PanelLeftClose size={16} aria-hidden />
		</IconButton>
	);
	if (agents.offline) {
		return (
			<Frame>
				<div className="flex justify-end">{fold}</div>
				<p className="p-3 text-soft">The backend is offline: there is nothing to choose from.</p>
			</Frame>
		);
	}
	return (
		<Frame>
			<div className="mb-2 flex items-center gap-1">
				<Input
					aria-label="search the palette"
					placeholder="Search"
					value={sought}
					onChange={(event) => setSought(event.target.value)}
				/>
				{fold}
			</div>
			<Loading of={agents} />
			<Refused error={tools.error ?? collections.error} />
			<Section title="Agents">
				{wanted("supervisor") && (
					<Item
						icon={<Route size={16} aria-hidden className="text-accent" />}
						name="supervisor"
						about="chooses an agent for the task"
						draft={{ kind: "agent", data: { agent: null, task: "" } }}
					/>
				)}
				{agents.data?.items
					.filter((one) => wanted(one.name, one.description, ...one.capabilities))
					.map((agent) => (
						<Item
							key={agent.name}
							icon={<Bot size={16} aria-hidden className="text-accent" />}
							name={agent.name}
							about={`${agent.description} ${agent.capabilities.join(", ")}`}
							draft={{ kind: "agent", data: { agent: agent.name, task: "" } }}
						/>
					))}
			</Section>
			<Section title="Tools">
				{tools.data?.items
					.filter((one) => wanted(one.name, one.description))
					.map((tool) => (
						<Item
							key={tool.name}
							icon={<Wrench size={16} aria-hidden className="text-warn" />}
							name={tool.name}
							about={`${tool.description} Effect: ${tool.effect}.`}
							draft={{ kind: "tool", data: { tool: tool.name } }}
						/>
					))}
			</Section>
			<Section title="Collections">
				{collections.data?.items
					.filter((one) => wanted(one.name))
					.map((collection) => (
						<Item
							key={collection.physical_name}
							icon={<BookOpen size={16} aria-hidden className="text-good" />}
							name={collection.name}
							about={`${count(collection.documents, "document")}, ${count(collection.chunks, "chunk")}`}
							draft={{ kind: "collection", data: { collection: collection.name } }}
						/>
					))}
				{collections.data?.items.length === 0 && (
					<p className="px-2 text-soft text-xs">
						none in {namespace};{" "}
						<Link href="/ui/collections/" prefetch={false} className="text-accent underline">
							upload one
						</Link>
					</p>
				)}
			</Section>
			<Section title="Other">
				{wanted("sticky note") && (
					<Item
						icon={<StickyNote size={16} aria-hidden />}
						name="sticky note"
						about="words for whoever reads the canvas"
						draft={{ kind: "note", data: { text: "" } }}
					/>
				)}
			</Section>
		</Frame>
	);
}

function Frame({ children }: { children: ReactNode }) {
	return (
		<aside aria-label="palette" className="w-56 shrink-0 overflow-auto border-line border-r bg-surface p-2 max-lg:w-44">
			{children}
		</aside>
	);
}

function Section({ title, children }: { title: string; children: ReactNode }) {
	return (
		<section className="mb-4">
			<h2 className="mb-1 px-2 text-soft text-xs uppercase tracking-wide">{title}</h2>
			<div className="space-y-1">{children}</div>
		</section>
	);
}

/** A name that may go on in the next line behind each of its words, where the palette is narrow. */
function breakable(name: string): ReactNode[] {
	return (
		name
			.split(/(?<=_)/)
			// biome-ignore lint/suspicious/noArrayIndexKey: the words of a name have no other one
			.flatMap((word, at) => (at === 0 ? [word] : [<wbr key={at} />, word]))
	);
}

function Item({ icon, name, about, draft }: { icon: ReactNode; name: string; about: string; draft: Draft }) {
	const add = useCanvas((s) => s.add);
	const flow = useReactFlow();
	/** By keyboard or touch: into what is seen, and onto no other node. */
	const put = () => {
		const seen = document.querySelector(".react-flow")?.getBoundingClientRect();
		if (!seen) return;
		const { x, y } = flow.screenToFlowPosition({ x: seen.x + MARGIN_PX, y: seen.y + MARGIN_PX });
		const sizeOf = (id: string) => {
			const node = flow.getNode(id);
			const { width = node?.initialWidth ?? 0, height = node?.initialHeight ?? 0 } = node?.measured ?? {};
			return { width, height };
		};
		const { initialWidth: width, initialHeight: height } = SIZES[draft.kind];
		const box = { x: Math.round(x), y: Math.round(y), width, height };
		const place = freePlace(useCanvas.getState().history.present, box, sizeOf);
		add({ ...draft, ...place } as Omit<CanvasNode, "id">);
	};
	return (
		<Button
			tone="quiet"
			className="w-full cursor-grab justify-start text-left [&>svg]:shrink-0"
			title={about}
			draggable
			onDragStart={(event) => {
				event.dataTransfer.setData(DRAG_TYPE, JSON.stringify(draft));
				event.dataTransfer.effectAllowed = "copy";
			}}
			onClick={put}
		>
			{icon}
			<span className="min-w-0 break-words">{breakable(name)}</span>
		</Button>
	);
}
