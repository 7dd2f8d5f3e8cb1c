"use client";

import { useMemo, useState } from "react";
import { API_BASE } from "@/api/client";
import { usePolled } from "@/api/polling";
import type { FindingView, ReportView, Severity } from "@/api/shapes";
import { Bars } from "@/charts/Bars";
import { Stacked } from "@/charts/Stacked";
import { Written } from "@/runs/Written";
import { Loading, Panel, Status, Table } from "@/ui";
import { lasted, number } from "@/ui/words";
import { Findings } from "./Findings";
import { SEVERITIES, stacked } from "./grouping";
import { usePathOf } from "./namespace";
import { type Place, SourceFile } from "./SourceFile";
import { PublicNames } from "./Surface";

/** Files with a bar. */
const MOST_FILES = 12;

const TONES: Record<Severity, "bad" | "warn" | "soft"> = {
	critical: "bad",
	high: "bad",
	medium: "warn",
	low: "soft",
	info: "soft",
};

/** The newest analysis: figures with charts, the tools that ran, the model's review, every finding. */
export function Report({ id, onImprove }: { id: string; onImprove: (file: string) => void }) {
	const pathOf = usePathOf(id);
	const polled = usePolled<ReportView>(pathOf("/report"), 60_000);
	const report = polled.data;
	const [place, setPlace] = useState<Place | null>(null);
	if (!report) return <Loading of={polled} />;
	const { summary } = report;
	const form = (format: "html" | "sarif") => API_BASE + pathOf("/report", { analysis: report.analysis_id, format });
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
				<BySeverity title="Severity by tool" label="findings of each severity by tool" of={report.findings} by="tool" />
				<Panel title="Figures">
					<dl className="grid grid-cols-[1fr_auto] gap-x-3">
						{Object.entries({ files: summary.files, lines: summary.lines, ...report.metrics }).map(([name, value]) => (
							<div key={name} className="contents">
								<dt className="text-soft">{name.replaceAll("_", " ")}</dt>
								<dd className="text-right tabular-nums">{number(value)}</dd>
							</div>
						))}
					</dl>
					<p className="mt-2 flex gap-3 text-xs">
						<a className="hit text-accent underline" href={form("html")} download="report.html">
							As a page
						</a>
						<a className="hit text-accent underline" href={form("sarif")} download="report.sarif">
							As SARIF
						</a>
					</p>
				</Panel>
			</div>
			<BySeverity title="Findings by file" label="findings of each severity by file" of={report.findings} by="file" />
			{report.review && <Review review={report.review} onOpen={setPlace} />}
			<Findings
				findings={report.findings}
				total={summary.findings}
				truncated={report.findings_truncated}
				onOpen={setPlace}
				onImprove={onImprove}
			/>
			{report.surface && <PublicNames surface={report.surface} change={report.surface_change} />}
			<div className="grid gap-3 xl:grid-cols-2">
				<Panel title="Files that need it most">
					<Table head={["file", "lines", "complexity", "findings"]}>
						{report.file_metrics.map((one) => (
							<tr key={one.file}>
								<td className="break-all">
									<button
										type="button"
										className="hit text-left text-accent"
										onClick={() => setPlace({ file: one.file })}
									>
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
				<Panel title={`Tools, ${lasted(report.took_ms)} in all`}>
					<Table head={["tool", "status", "findings", "time"]}>
						{report.tools.map((tool) => (
							<tr key={tool.name}>
								<td>
									{tool.name}
									{tool.detail && <span className="block text-xs">{tool.detail}</span>}
									{tool.fix && <code className="block break-all font-mono text-xs">{tool.fix}</code>}
								</td>
								<td>
									<Status of={tool.status} />
								</td>
								<td className="tabular-nums">{number(tool.findings)}</td>
								<td className="whitespace-nowrap tabular-nums">{lasted(tool.took_ms)}</td>
							</tr>
						))}
					</Table>
				</Panel>
			</div>
			<SourceFile id={id} place={place} onClose={() => setPlace(null)} />
		</div>
	);
}

function BySeverity(props: { title: string; label: string; of: FindingView[]; by: "file" | "tool" }) {
	const { title, label, of, by } = props;
	const rows = useMemo(() => stacked(of, by), [of, by]);
	if (rows.length === 0) return null;
	const parts = (row: (typeof rows)[number]) =>
		row.parts.map(({ severity, count }) => ({ name: severity, count, tone: TONES[severity] }));
	return (
		<Panel title={title}>
			<Stacked label={label} rows={rows.slice(0, MOST_FILES).map((row) => ({ ...row, parts: parts(row) }))} />
			{rows.length > MOST_FILES && <p className="text-soft text-xs">{number(rows.length - MOST_FILES)} more below</p>}
		</Panel>
	);
}

function Review({ review, onOpen }: { review: NonNullable<ReportView["review"]>; onOpen: (place: Place) => void }) {
	return (
		<Panel title={`Review by ${review.model}`}>
			<Written text={review.text} />
			<ul className="mt-2 flex flex-wrap gap-2">
				{review.citations.map(({ n, file, line }) => (
					<li key={n}>
						<button
							type="button"
							className="hit break-all rounded bg-raised px-1.5 text-left text-accent text-xs"
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
