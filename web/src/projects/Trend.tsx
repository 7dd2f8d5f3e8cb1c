"use client";

import { useMemo, useState } from "react";
import { usePolled } from "@/api/polling";
import type { AnalysisSummary, FindingView, Page, TrendView } from "@/api/shapes";
import { Curve, type Line } from "@/charts/Curve";
import { Empty, Field, Loading, Panel, Refused, Select, Status } from "@/ui";
import { count, moment, number } from "@/ui/words";
import { usePathOf } from "./namespace";
import { Changed } from "./Surface";

const MOST_SHOWN = 200;

/** How the analyses of a project differ: all of them as curves, two of them finding by finding. */
export function Trend({ id }: { id: string }) {
	const pathOf = usePathOf(id);
	const listed = usePolled<Page<AnalysisSummary>>(pathOf("/analyses", { limit: "100" }), 60_000);
	const { data } = listed;
	const analyses = useMemo(() => [...(data?.items ?? [])].reverse(), [data]);
	const [from, setFrom] = useState("");
	const [to, setTo] = useState("");
	const [first, last] = [from || analyses.at(-2)?.analysis_id, to || analyses.at(-1)?.analysis_id];
	const query = first && last ? { from: first, to: last } : null;
	const trend = usePolled<TrendView>(query ? pathOf("/trend", query) : null, 60_000);
	const { x, lines } = useCurves(analyses);
	if (!data) return <Loading of={listed} />;
	if (analyses.length < 2) return <Empty>Analyze it again to see what changed.</Empty>;
	return (
		<div className="space-y-3">
			<Panel title="Findings over time">
				<Curve title="Findings" x={x} xLabel="analysis" lines={lines} />
			</Panel>
			<Panel title="Between two">
				<div className="mb-3 grid grid-cols-2 gap-2">
					<Field label="from">
						<Choice analyses={analyses} value={first} onChange={setFrom} />
					</Field>
					<Field label="to">
						<Choice analyses={analyses} value={last} onChange={setTo} />
					</Field>
				</div>
				<Refused error={trend.error} />
				{trend.data && (
					<>
						<p>
							{number(trend.data.new.length)} new, {number(trend.data.fixed.length)} gone,{" "}
							{number(trend.data.unchanged)} as before
						</p>
						<NotCompared tools={trend.data.not_compared ?? []} />
						<div className="mt-2 grid gap-3 xl:grid-cols-2">
							<Side title="New" findings={trend.data.new} />
							<Side title="Gone" findings={trend.data.fixed} />
						</div>
						{trend.data.surface && (
							<div className="mt-3">
								<Changed change={trend.data.surface} />
							</div>
						)}
					</>
				)}
			</Panel>
		</div>
	);
}

function useCurves(analyses: AnalysisSummary[]): { x: number[]; lines: Line[] } {
	return useMemo(() => {
		const serious = ({ by_severity: by }: AnalysisSummary) => (by.critical ?? 0) + (by.high ?? 0);
		return {
			x: analyses.map((_, at) => at + 1),
			lines: [
				{ label: "all", values: analyses.map((one) => one.findings), color: "accent" },
				{ label: "high and critical", values: analyses.map(serious), color: "warn" },
			],
		};
	}, [analyses]);
}

function Choice({
	analyses,
	value,
	onChange,
}: {
	analyses: AnalysisSummary[];
	value: string | undefined;
	onChange: (id: string) => void;
}) {
	return (
		<Select value={value} onChange={(event) => onChange(event.target.value)}>
			{analyses.map((one, at) => (
				<option key={one.analysis_id} value={one.analysis_id}>
					{at + 1}: {moment(one.created_at)}, {count(one.findings, "finding")}
				</option>
			))}
		</Select>
	);
}

/** Tools that only one of the two analyses can speak for. */
function NotCompared({ tools }: { tools: NonNullable<TrendView["not_compared"]> }) {
	if (tools.length === 0) return null;
	return (
		<p className="text-warn text-xs">Not compared: {tools.map(({ tool, why }) => `${tool} (${why})`).join(", ")}</p>
	);
}

function Side({ title, findings }: { title: string; findings: FindingView[] }) {
	return (
		<section aria-label={title} className="min-w-0">
			<h3 className="font-semibold">{title}</h3>
			{/* biome-ignore lint/a11y/noNoninteractiveTabindex: what scrolls must be reached by keyboard */}
			<ul tabIndex={0} className="max-h-96 overflow-auto">
				{findings.slice(0, MOST_SHOWN).map((one) => (
					<li key={one.id} className="border-line border-b py-1 last:border-0">
						<Status of={one.severity} />{" "}
						<span className="break-all font-mono text-xs">
							{one.file}:{one.line} {one.rule}
						</span>
						<span className="block break-words">{one.message}</span>
					</li>
				))}
			</ul>
			{findings.length > MOST_SHOWN && <p className="text-soft text-xs">{findings.length - MOST_SHOWN} more</p>}
		</section>
	);
}
