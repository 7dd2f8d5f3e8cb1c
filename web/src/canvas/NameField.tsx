"use client";

import { type AgentNode, LIMITS } from "./document";
import { nameOf, settledName } from "./names";
import { useCanvas } from "./store";

type Props = { node: AgentNode; label: string; className: string };

/** Where an agent is named. Whoever leaves it empty gets the default name again; Enter and Escape leave it. */
export function NameField({ node, label, className }: Props) {
	const change = useCanvas((s) => s.change);
	const settle = () => {
		const name = settledName(useCanvas.getState().history.present, node);
		if (name !== node.data.name) change(node.id, { name });
	};
	return (
		<input
			aria-label={label}
			data-names={node.id}
			className={className}
			// As wide as its words: the rest of a node's head is there to drag it by.
			size={Math.max(4, nameOf(node).length)}
			maxLength={LIMITS.agentName}
			placeholder={nameOf(node)}
			value={node.data.name ?? ""}
			onChange={(event) => change(node.id, { name: event.target.value.trim() === "" ? undefined : event.target.value })}
			onBlur={settle}
			onKeyDown={(event) => {
				if (event.key === "Enter" || event.key === "Escape") event.currentTarget.blur();
			}}
		/>
	);
}
