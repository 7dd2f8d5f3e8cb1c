"use client";

import { useMemo, useState } from "react";
import { call, type DeadLetterEntry, describe, type HealthView } from "@/api/client";
import { usePolled } from "@/api/polling";
import type { Items } from "@/api/shapes";
import { Alert, Button, Empty, Loading, Panel, Status } from "@/ui";
import { anyCut, LETTERS } from "./letters";
import { ModelCards } from "./ModelCards";

/** What is there, what is missing and how to mend it; how far behind the workers are; what could not be handled. */
export function System() {
	return (
		<div className="grid grid-cols-[minmax(0,1fr)] items-start gap-3 p-3 xl:grid-cols-2">
			<h1 className="sr-only">System</h1>
			<Services />
			<div className="space-y-3">
				<DeadLetters />
				<ModelCards />
			</div>
		</div>
	);
}

function Services() {
	const health = usePolled<HealthView>("/health", 3_000);
	const { data } = health;
	const lags = Object.entries((data?.lag ?? {}) as Record<string, number>);
	return (
		<div className="space-y-3">
			<Panel title="Services">
				<Loading of={health} />
				<table className="w-full">
					<tbody>
						{data?.services.map((service) => (
							<tr key={service.name} className="border-line border-t align-top first:border-0">
								<th scope="row" className="py-1 pr-3 text-left font-medium">
									{service.name}
									<span className="block font-normal text-soft text-xs">
										{service.required ? "required" : "optional"},{" "}
										{[service.kind, service.version].filter(Boolean).join(" ")}
									</span>
								</th>
								<td className="py-1">
									<Status of={service.status} />
								</td>
								<td className="py-1 pl-3">
									{service.detail}
									{service.address && (
										<span className="block break-all font-mono text-soft text-xs">{service.address}</span>
									)}
									{service.fix && <code className="block font-mono text-xs">{service.fix}</code>}
								</td>
								<td className="whitespace-nowrap py-1 pl-2 text-right text-soft text-xs tabular-nums">
									{service.latency_ms != null && `${service.latency_ms} ms`}
								</td>
							</tr>
						))}
					</tbody>
				</table>
			</Panel>
			<Panel title="Behind">
				{data && lags.length === 0 && <Empty>Nobody knows: the log does not say how far its readers are.</Empty>}
				<table className="w-full">
					<tbody>
						{lags.map(([group, lag]) => (
							<tr key={group} className="border-line border-t first:border-0">
								<th scope="row" className="py-1 text-left font-mono font-normal text-xs">
									{group}
								</th>
								<td className="py-1 text-right tabular-nums">
									{lag === 0 ? "nothing" : `${lag} record${lag === 1 ? "" : "s"}`}
								</td>
							</tr>
						))}
					</tbody>
				</table>
			</Panel>
		</div>
	);
}

function DeadLetters() {
	const [limit, setLimit] = useState<number>(LETTERS.first);
	const page = usePolled<Items<DeadLetterEntry>>(`/dlq?limit=${limit}`, 5_000);
	const { data, refresh } = page;
	const isCut = anyCut(data?.items ?? [], limit);
	const [problem, setProblem] = useState<string | null>(null);
	// Those that somebody has to look at stand above those that were handled.
	const letters = useMemo(
		() => [...(data?.items ?? [])].reverse().sort((a, b) => Number(b.status === "open") - Number(a.status === "open")),
		[data],
	);
	const act = async (id: string, what: "redrive" | "drop") => {
		try {
			await call(`/dlq/${encodeURIComponent(id)}/${what}`, { method: "POST", body: {} });
			setProblem(null);
		} catch (error) {
			setProblem(describe(error));
		}
		refresh();
	};
	return (
		<Panel title="Dead letters">
			<Loading of={page} />
			<Alert>{problem}</Alert>
			{data?.items.length === 0 && <Empty>None: everything could be handled.</Empty>}
			<ul aria-label="dead letters">
				{letters.map((letter) => (
					<li key={letter.id} className="border-line border-t py-2 first:border-0">
						<p className="flex flex-wrap items-center gap-x-2">
							<Status of={letter.status} />
							<span className="break-words font-medium">{letter.reason}</span>
						</p>
						<p className="break-all text-soft text-xs">
							<span className="font-mono">{letter.topic}</span>, partition {letter.partition}, offset {letter.offset} ·{" "}
							<span className="font-mono">{letter.code}</span>
						</p>
						{letter.status === "open" && (
							<div className="mt-1 flex gap-2">
								<Button aria-label={`Redrive ${placeOf(letter)}`} onClick={() => void act(letter.id, "redrive")}>
									Redrive
								</Button>
								<Button
									tone="danger"
									aria-label={`Drop ${placeOf(letter)}`}
									onClick={() => void act(letter.id, "drop")}
								>
									Drop
								</Button>
							</div>
						)}
					</li>
				))}
			</ul>
			{isCut && (
				<div className="mt-2 flex flex-wrap items-center gap-2">
					<p className="text-soft text-xs">The newest {limit} of each topic.</p>
					{limit < LETTERS.most && <Button onClick={() => setLimit(LETTERS.most)}>Show older ones</Button>}
				</div>
			)}
		</Panel>
	);
}

function placeOf({ topic, partition, offset }: DeadLetterEntry): string {
	return `${topic} ${partition}@${offset}`;
}
