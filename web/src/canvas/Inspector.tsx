"use client";

import type { AgentEntry } from "@/api/client";
import { usePolled } from "@/api/polling";
import { Button, Field, Input, Select } from "@/ui";
import { type AgentNode, type Approval, LIMITS } from "./document";
import { useCanvas } from "./store";

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

/** A number that a run takes; nothing is the server's default. */
function iterations(text: string): number | undefined {
	const value = Math.round(Number(text));
	return value > 0 ? Math.min(value, LIMITS.iterations) : undefined;
}
