"use client";

import { usePolled } from "@/api/polling";
import type { Items, ModelCard } from "@/api/shapes";
import { Empty, Loading, Panel, Table } from "@/ui";
import { moment, number } from "@/ui/words";

/** What was measured of the models. */
export function ModelCards() {
	const cards = usePolled<Items<ModelCard>>("/models/cards", 30_000);
	const { data } = cards;
	return (
		<Panel title="Models">
			<Loading of={cards} />
			{data?.items.length === 0 && (
				<Empty>
					Nothing was measured yet: <code className="font-mono">riverrun models probe MODEL</code> does.
				</Empty>
			)}
			{(data?.items.length ?? 0) > 0 && (
				<Table head={["model", "JSON", "tool calls", "context, usable", "tokens/s", "measured"]}>
					{data?.items.map((card) => (
						<tr key={`${card.provider}/${card.model} ${card.machine}`}>
							<td className="break-all">
								{card.model} <span className="text-soft text-xs">{card.provider}</span>
								<span className="block text-soft text-xs">{card.machine}</span>
							</td>
							<td className="whitespace-nowrap tabular-nums">
								{card.valid_json} of {card.questions}
							</td>
							<td className="whitespace-nowrap tabular-nums">
								{card.valid_tool_calls} of {card.questions}
							</td>
							<td className="whitespace-nowrap tabular-nums">
								{known(card.context_tokens)}, {known(card.usable_context_tokens)}
							</td>
							<td className="tabular-nums">{known(card.tokens_per_s)}</td>
							<td className="text-soft text-xs">{moment(card.measured_at)}</td>
						</tr>
					))}
				</Table>
			)}
		</Panel>
	);
}

function known(value: number | null | undefined): string {
	return value == null ? "unknown" : number(value);
}
