"use client";

import { useState } from "react";
import { usePolled } from "@/api/polling";
import type { ReportView, Severity } from "@/api/shapes";
import { Bars } from "@/charts/Bars";
import { Panel, Refused, Status, Table } from "@/ui";
import { number } from "@/ui/words";
import { Findings } from "./Findings";
import { SEVERITIES } from "./grouping";
import { type Place, SourceFile } from "./SourceFile";

const TONES: Record<Severity, "bad" | "warn" | "soft"> = {
	critical: "bad",
	high: "bad",
	medium: "warn",
	low: "soft",
	info: "soft",
};

/** The newest analysis: figures with charts, the tools that ran, the model's review, every finding. */
export function Report({ id, onImprove }: { id: string; onImprove: (file: string) => void }) {
	const { data: report, error } = usePolled<ReportView>(`/projects/${encodeURIComponent(id)}/report`, 60_000);
	const [place, setPlace] = useState<Place | null>(null);
	if (!report) return <Refused error={error} />;
	const { summary } = report;
	return (
		<div className="space-y-3">
			<div className="grid gap-3 xl:grid-cols-3">
				<Panel title="By severity">
					<Bars
						label="findings by severity"
						bars={SEVERITIES.map((name) => ({
							name,
							value: summary.by_severity[name] ?? 0,
							tone: TONES[name],
						}))}
					/>
				</Panel>
				<Panel title="By tool">
					<Bars
						label="findings by tool"
						bars={Object.entries(summary.by_tool).map(([name, value]) => ({ name, value, tone: "accent" as const }))}
					/>
				</Panel>
				<Panel title="Figures">
					<dl className="grid grid-cols-[1fr_auto] gap-x-3">
						{Object.entries({ files: summary.files, lines: summary.lines, ...report.metrics }).map(([name, value]) => (
							<div key={name} className="contents">
								<dt className="text-soft">{name.replaceAll("_", " ")}</dt>
								<dd className="text-right tabular-nums">{number(value)}</dd>
							</div>
						))}
					</dl>
				</Panel>
			</div>
			{report.review && <Review review={report.review} onOpen={setPlace} />}
			<Findings
				findings={report.findings}
				total={summary.findings}
				truncated={report.findings_truncated ?? false}
				onOpen={setPlace}
				onImprove={onImprove}
			/>
			<div className="grid gap-3 xl:grid-cols-2">
				<Panel title="Files that need it most">
					<Table head={["file", "lines", "complexity", "findings"]}>
						{report.file_metrics.map((one) => (
							<tr key={one.file}>
								<td className="break-all">
									<button type="button" className="text-left text-accent" onClick={() => setPlace({ file: one.file })}>
										{one.file}
									</button>
								</td>
								<td className="tabular-nums">{number(one.lines)}</td>
								<td className="tabular-nums">{number(one.complexity)}</td>
								<td className="tabular-nums">{number(one.findings)}</td>
							</tr>
						))}
					</Table>
				</Panel>
				<Panel title={`Tools, ${(report.took_ms / 1000).toFixed(1)} s in all`}>
					<Table head={["tool", "status", "findings", "time"]}>
						{report.tools.map((tool) => (
							<tr key={tool.name}>
								<td>
									{tool.name} <span className="text-soft text-xs">{tool.version}</span>
									{tool.detail && <span className="block text-xs">{tool.detail}</span>}
									{tool.fix && <code className="block break-all font-mono text-xs">{tool.fix}</code>}
								</td>
								<td>
									<Status of={tool.status} />
								</td>
								<td className="tabular-nums">{number(tool.findings)}</td>
								<td className="whitespace-nowrap tabular-nums">{number(tool.took_ms)} ms</td>
							</tr>
						))}
					</Table>
				</Panel>
			</div>
			<SourceFile id={id} place={place} onClose={() => setPlace(null)} />
		</div>
	);
}

function Review({ review, onOpen }: { review: NonNullable<ReportView["review"]>; onOpen: (place: Place) => void }) {
	return (
		<Panel title={`Review by ${review.model}`}>
			<p className="whitespace-pre-wrap break-words">{review.text}</p>
			<ul className="mt-2 flex flex-wrap gap-2">
				{review.citations.map(({ n, file, line }) => (
					<li key={n}>
						<button
							type="button"
							className="break-all rounded bg-raised px-1.5 text-accent text-xs"
							onClick={() => onOpen({ file, line })}
						>
							[{n}] {file}:{line}
						</button>
					</li>
				))}
			</ul>
		</Panel>
	);
}
