"use client";

import { X } from "lucide-react";
import type { AgentEntry } from "@/api/client";
import { usePolled } from "@/api/polling";
import { Button, Field, Input, Select } from "@/ui";
import { type AgentNode, type Approval, type CanvasNode, LIMITS, nodeOf, refusal } from "./document";
import { useCanvas } from "./store";

/** A longer list is no list to choose from. */
const MOST_OFFERED = 200;

/** The settings of the one agent that is selected. */
export function Inspector() {
	const node = useCanvas((s) => {
		if (s.selected.size !== 1) return undefined;
		return s.history.present.nodes.find((one) => s.selected.has(one.id));
	});
	if (node?.kind !== "agent") return null;
	return <AgentSettings node={node} />;
}

function AgentSettings({ node }: { node: AgentNode }) {
	const { change, remove, run } = useCanvas.getState();
	const agents = usePolled<{ items: AgentEntry[] }>("/agents", 60_000);
	const { data } = node;
	return (
		<aside aria-label="settings" className="w-64 shrink-0 space-y-3 overflow-auto border-line border-l bg-surface p-3">
			<h2 className="font-semibold">Agent</h2>
			<Field label="type">
				<Select value={data.agent ?? ""} onChange={(event) => change(node.id, { agent: event.target.value || null })}>
					<option value="">supervisor chooses</option>
					{agents.data?.items.map((agent) => (
						<option key={agent.name}>{agent.name}</option>
					))}
				</Select>
			</Field>
			<Field label="model">
				<Input
					placeholder="the default one"
					value={data.model ?? ""}
					onChange={(event) => change(node.id, { model: event.target.value || undefined })}
				/>
			</Field>
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
					<option value="external">those that change something outside</option>
					<option value="always">all</option>
					<option value="never">none</option>
				</Select>
			</Field>
			<Field label="session">
				<Input
					placeholder="none"
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
					const name = nameOf(nodeOf(document, edge.from));
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
							{nameOf(one)}
						</option>
					))}
				</Select>
			)}
		</section>
	);
}

function nameOf(node: CanvasNode | undefined): string {
	switch (node?.kind) {
		case "agent":
			return `${node.data.agent ?? "supervisor"} ${node.data.task.slice(0, 40)}`.trim();
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
