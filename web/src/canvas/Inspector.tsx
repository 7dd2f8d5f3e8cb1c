"use client";

import { X } from "lucide-react";
import type { ReactNode } from "react";
import type { AgentEntry, CollectionView, ToolEntry } from "@/api/client";
import { usePolled } from "@/api/polling";
import type { Items, ModelEntry } from "@/api/shapes";
import { Button, FIELD, Field, IconButton, Input, Select } from "@/ui";
import { count } from "@/ui/words";
import { type AgentNode, type Approval, type CanvasNode, LIMITS, nodeOf, refusal } from "./document";
import { NameField } from "./NameField";
import { nameOf, retyped } from "./names";
import { useCanvas } from "./store";

/** A longer list is no list to choose from. */
const MOST_OFFERED = 200;

const EFFECTS: Record<string, string> = {
	none: "none, it only looks",
	idempotent: "the same however often it is called",
	external: "it changes something outside",
};

type SourceNode = Extract<CanvasNode, { kind: "tool" | "collection" }>;

/** The settings of the one node that is selected. */
export function Inspector() {
	const node = useCanvas((s) => {
		if (s.selected.size !== 1) return undefined;
		return s.history.present.nodes.find((one) => s.selected.has(one.id));
	});
	if (node?.kind === "agent") return <AgentSettings node={node} />;
	if (node?.kind === "tool" || node?.kind === "collection") return <SourceSettings key={node.id} node={node} />;
	return null;
}

function AgentSettings({ node }: { node: AgentNode }) {
	const { change, remove, run } = useCanvas.getState();
	const agents = usePolled<Items<AgentEntry>>("/agents", 60_000);
	const models = usePolled<Items<ModelEntry>>("/models", 60_000);
	const { data } = node;
	return (
		<Settings title="Agent">
			<Field label="name">
				<NameField node={node} label="name" className={FIELD} />
			</Field>
			<Field label="type">
				<Select
					value={data.agent ?? ""}
					onChange={(event) =>
						change(node.id, retyped(useCanvas.getState().history.present, node, event.target.value || null))
					}
				>
					<option value="">supervisor chooses</option>
					{agents.data?.items.map((agent) => (
						<option key={agent.name}>{agent.name}</option>
					))}
				</Select>
			</Field>
			<Field label="model">
				<Input
					list="models"
					placeholder="the default one"
					maxLength={LIMITS.name}
					value={data.model ?? ""}
					onChange={(event) => change(node.id, { model: event.target.value || undefined })}
				/>
			</Field>
			<datalist id="models">
				{models.data?.items
					.filter((one) => one.present && one.kind !== "embed" && one.kind !== "rerank")
					.map((one) => (
						<option key={`${one.provider}/${one.name}`} value={one.name}>
							{one.provider}
						</option>
					))}
			</datalist>
			<Field label="most iterations">
				<Input
					type="number"
					min={1}
					max={LIMITS.iterations}
					placeholder="8"
					value={data.maxIters ?? ""}
					onChange={(event) => change(node.id, { maxIters: iterations(event.target.value) })}
				/>
			</Field>
			<Field label="tool calls that wait for your approval">
				<Select
					value={data.approval ?? "external"}
					onChange={(event) => change(node.id, { approval: event.target.value as Approval })}
				>
					<option value="external">with outside effects</option>
					<option value="always">all</option>
					<option value="never">none</option>
				</Select>
			</Field>
			<Field label="session">
				<Input
					placeholder="none"
					maxLength={LIMITS.name}
					value={data.session ?? ""}
					onChange={(event) => change(node.id, { session: event.target.value || undefined })}
				/>
			</Field>
			<Inputs node={node} />
			<div className="flex gap-2">
				<Button tone="accent" onClick={() => void run(node.id)}>
					Run
				</Button>
				<Button tone="danger" onClick={() => remove([node.id])}>
					Remove
				</Button>
			</div>
		</Settings>
	);
}

/** What a tool or a collection is, for whoever has not chosen it. */
function SourceSettings({ node }: { node: SourceNode }) {
	const namespace = useCanvas((s) => s.history.present.namespace);
	const { remove } = useCanvas.getState();
	const query = `?namespace=${encodeURIComponent(namespace)}`;
	const tools = usePolled<Items<ToolEntry>>(node.kind === "tool" ? `/tools${query}` : null, 60_000);
	const collections = usePolled<Items<CollectionView>>(
		node.kind === "collection" ? `/collections${query}` : null,
		60_000,
	);
	const name = wordsOf(node);
	const tool = tools.data?.items.find((one) => one.name === name);
	const collection = collections.data?.items.find((one) => one.name === name);
	const isMissing = node.kind === "tool" ? tools.data && !tool : collections.data && !collection;
	return (
		<Settings title={name}>
			{tool && (
				<>
					<p className="text-soft">{tool.description}</p>
					<p className="text-xs">
						Effect: {EFFECTS[tool.effect] ?? tool.effect}. {tool.needs_approval && "A call by hand asks first."}
					</p>
					<h3 className="text-soft text-xs">arguments</h3>
					<ul className="font-mono text-xs">
						{Object.keys((tool.input_schema as { properties?: object }).properties ?? {}).map((argument) => (
							<li key={argument}>{argument}</li>
						))}
					</ul>
				</>
			)}
			{collection && (
				<p className="text-soft">
					{count(collection.documents, "document")}, {count(collection.chunks, "chunk")}. An agent that is connected
					reads it with knowledge_search.
				</p>
			)}
			{isMissing && (
				<p className="text-warn">
					There is no {node.kind} of this name in {namespace}: an agent that is connected to it can't run.
				</p>
			)}
			<Button tone="danger" onClick={() => remove([node.id])}>
				Remove
			</Button>
		</Settings>
	);
}

/** At the side; below, over the canvas, where there is no place for both. */
function Settings({ title, children }: { title: string; children: ReactNode }) {
	const { select } = useCanvas.getState();
	return (
		<aside
			aria-label="settings"
			className="w-64 shrink-0 space-y-3 overflow-auto border-line border-l bg-surface p-3 max-lg:absolute max-lg:inset-x-0 max-lg:bottom-0 max-lg:z-10 max-lg:max-h-2/5 max-lg:w-auto max-lg:border-t max-lg:border-l-0 max-lg:shadow-xl"
		>
			<div className="flex items-center gap-2">
				<h2 className="min-w-0 flex-1 truncate font-semibold">{title}</h2>
				<IconButton label="close the settings" className="px-1.5!" onClick={() => select([])}>
					<X size={16} aria-hidden />
				</IconButton>
			</div>
			<div className="space-y-3 max-lg:grid max-lg:grid-cols-3 max-lg:items-start max-lg:gap-3 max-lg:space-y-0">
				{children}
			</div>
		</aside>
	);
}

/** What is connected to the agent; connects and cuts without a mouse. */
function Inputs({ node }: { node: AgentNode }) {
	const document = useCanvas((s) => s.history.present);
	const { connect, remove } = useCanvas.getState();
	const edges = document.edges.filter((edge) => edge.to === node.id);
	const possible = document.nodes.filter((one) => refusal(document, one.id, node.id) === null);
	return (
		<section aria-label="inputs" className="space-y-1">
			<h3 className="text-soft text-xs">inputs</h3>
			<ul>
				{edges.map((edge) => {
					const name = wordsOf(nodeOf(document, edge.from));
					return (
						<li key={edge.id} className="flex items-center gap-1">
							<span className="min-w-0 flex-1 truncate">{name}</span>
							<Button tone="quiet" aria-label={`disconnect ${name}`} onClick={() => remove([edge.id])}>
								<X size={14} aria-hidden />
							</Button>
						</li>
					);
				})}
			</ul>
			{possible.length > 0 && (
				<Select aria-label="connect an input" value="" onChange={(event) => connect(event.target.value, node.id)}>
					<option value="">connect…</option>
					{possible.slice(0, MOST_OFFERED).map((one) => (
						<option key={one.id} value={one.id}>
							{wordsOf(one)}
						</option>
					))}
				</Select>
			)}
		</section>
	);
}

function wordsOf(node: CanvasNode | undefined): string {
	switch (node?.kind) {
		case "agent":
			return `${nameOf(node)} ${node.data.task.slice(0, 40)}`.trim();
		case "tool":
			return node.data.tool;
		case "collection":
			return node.data.collection;
		default:
			return node?.kind ?? "";
	}
}

/** A number that a run takes; nothing is the server's default. */
function iterations(text: string): number | undefined {
	const value = Math.round(Number(text));
	return value > 0 ? Math.min(value, LIMITS.iterations) : undefined;
}
