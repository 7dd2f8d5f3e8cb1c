"use client";

import type { HealthView } from "@/api/client";
import { usePolled } from "@/api/polling";
import { Empty, Loading, Panel, Status } from "@/ui";
import { count } from "@/ui/words";
import { DeadLetters } from "./DeadLetters";
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
								<th scope="row" className="w-px py-1 pr-3 text-left font-medium">
									<span className="whitespace-nowrap">{service.name}</span>
									<span className="block max-w-40 font-normal text-soft text-xs">
										{service.required ? "required" : "optional"},{" "}
										{[service.kind, service.version].filter(Boolean).join(" ")}
									</span>
								</th>
								<td className="w-px py-1 pr-3">
									<Status of={service.status} />
								</td>
								<td className="py-1">
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
								<td className="py-1 text-right tabular-nums">{lag === 0 ? "nothing" : count(lag, "record")}</td>
							</tr>
						))}
					</tbody>
				</table>
			</Panel>
		</div>
	);
}
