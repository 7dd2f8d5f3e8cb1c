"use client";

import { useMemo, useState } from "react";
import type { FindingView } from "@/api/shapes";
import { Button, Empty, Input, Panel, Select, Status } from "@/ui";
import { number } from "@/ui/words";
import { type Filter, type FindingGroup, filtered, type Grouping, grouped, NO_FILTER, SEVERITIES } from "./grouping";
import type { Place } from "./SourceFile";

/** Groups and findings that are drawn at once; the rest comes when it is asked for. */
const GROUPS = 30;
const IN_GROUP = 50;

type Props = {
	findings: FindingView[];
	total: number;
	truncated: boolean;
	onOpen: (place: Place) => void;
	onImprove: (file: string) => void;
};

/** Findings in groups, the worst first. */
export function Findings({ findings, total, truncated, onOpen, onImprove }: Props) {
	const [filter, setFilter] = useState<Filter>(NO_FILTER);
	const [by, setBy] = useState<Grouping>("file");
	const [shown, setShown] = useState(GROUPS);
	const tools = useMemo(() => [...new Set(findings.map((one) => one.tool))].sort(), [findings]);
	const left = useMemo(() => filtered(findings, filter), [findings, filter]);
	const groups = useMemo(() => grouped(left, by), [left, by]);
	const set = (change: Partial<Filter>) => setFilter((now) => ({ ...now, ...change }));
	return (
		<Panel title={`Findings: ${number(left.length)} of ${number(total)}`}>
			<div className="mb-3 flex flex-wrap gap-2">
				<Input
					aria-label="words in findings"
					placeholder="file, rule or words"
					className="w-52!"
					value={filter.text}
					onChange={(event) => set({ text: event.target.value })}
				/>
				<Select
					aria-label="severity of findings"
					className="w-auto!"
					value={filter.severity}
					onChange={(event) => set({ severity: event.target.value })}
				>
					<option value="">every severity</option>
					{SEVERITIES.map((one) => (
						<option key={one} value={one}>
							{one} and worse
						</option>
					))}
				</Select>
				<Select
					aria-label="tool of findings"
					className="w-auto!"
					value={filter.tool}
					onChange={(event) => set({ tool: event.target.value })}
				>
					<option value="">every tool</option>
					{tools.map((one) => (
						<option key={one}>{one}</option>
					))}
				</Select>
				<Select
					aria-label="group findings"
					className="w-auto!"
					value={by}
					onChange={(event) => setBy(event.target.value as Grouping)}
				>
					<option value="file">by file</option>
					<option value="rule">by rule</option>
					<option value="tool">by tool</option>
				</Select>
			</div>
			{truncated && (
				<p className="text-warn text-xs">Of each tool the worst findings are listed, 5,000 at most; all count.</p>
			)}
			{groups.length === 0 && <Empty>{findings.length === 0 ? "Nothing was found." : "Nothing fits."}</Empty>}
			{groups.slice(0, shown).map((group) => (
				<Group key={group.name} group={group} by={by} onOpen={onOpen} onImprove={onImprove} />
			))}
			{groups.length > shown && (
				<Button className="mt-2" onClick={() => setShown(shown + GROUPS)}>
					{number(groups.length - shown)} more
				</Button>
			)}
		</Panel>
	);
}

function Group({
	group,
	by,
	onOpen,
	onImprove,
}: {
	group: FindingGroup;
	by: Grouping;
	onOpen: (place: Place) => void;
	onImprove: (file: string) => void;
}) {
	const [open, setOpen] = useState(false);
	const [shown, setShown] = useState(IN_GROUP);
	return (
		<section className="border-line border-t py-1" aria-label={group.name}>
			<div className="flex items-center gap-2">
				<button
					type="button"
					aria-expanded={open}
					className="flex min-w-0 flex-1 items-center gap-2 rounded px-1 py-1 text-left hover:bg-raised"
					onClick={() => setOpen(!open)}
				>
					<Status of={group.worst} />
					<span className="min-w-0 break-all font-medium">{group.name}</span>
					<span className="ml-auto text-soft text-xs tabular-nums">{number(group.findings.length)}</span>
				</button>
				{by === "file" && (
					<Button aria-label={`Improve ${group.name}`} onClick={() => onImprove(group.name)}>
						Improve
					</Button>
				)}
			</div>
			{open && (
				<ul className="pl-3">
					{group.findings.slice(0, shown).map((one) => (
						<li key={one.id} className="border-line border-b py-1 last:border-0">
							<span className="flex flex-wrap items-baseline gap-2">
								<Status of={one.severity} />
								<button
									type="button"
									className="hit break-all text-left font-mono text-accent text-xs"
									onClick={() => onOpen({ file: one.file, line: one.line })}
								>
									{one.file}:{one.line}:{one.column}
								</button>
								<span className="font-mono text-soft text-xs">
									{one.tool} {one.rule}
								</span>
							</span>
							<span className="block break-words">{one.message}</span>
							{one.fix && <span className="block break-words text-soft text-xs">{one.fix}</span>}
						</li>
					))}
					{group.findings.length > shown && (
						<li>
							<Button tone="quiet" onClick={() => setShown(shown + IN_GROUP)}>
								{number(group.findings.length - shown)} more
							</Button>
						</li>
					)}
				</ul>
			)}
		</section>
	);
}
