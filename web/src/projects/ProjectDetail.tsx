"use client";

import { Tabs } from "radix-ui";
import { useEffect, useState } from "react";
import { API_BASE, call, describe } from "@/api/client";
import { usePolled } from "@/api/polling";
import type { ProjectView } from "@/api/shapes";
import { Alert, Button, Empty, Loading, Panel, Status } from "@/ui";
import { bytes, count, number } from "@/ui/words";
import { Improve } from "./Improve";
import { usePathOf } from "./namespace";
import { Report } from "./Report";
import { Trend } from "./Trend";

const BUSY_MS = 1_000;
const IDLE_MS = 5_000;
const TABS = ["report", "trend", "improve"] as const;
type Tab = (typeof TABS)[number];

/** `onStatus`: the project is somewhere else than it was, which a list of projects may not have heard of. */
export function ProjectDetail({ id, onStatus }: { id: string; onStatus: () => void }) {
	const [busy, setBusy] = useState(true);
	const [tab, setTab] = useState<Tab>("report");
	/** The file that somebody wants to have improved. */
	const [file, setFile] = useState("");
	const pathOf = usePathOf(id);
	const polled = usePolled<ProjectView>(pathOf(), busy ? BUSY_MS : IDLE_MS);
	const { data: project, refresh } = polled;
	const working = project?.status === "importing" || project?.status === "analyzing";
	useEffect(() => setBusy(project === null || working), [project, working]);
	const status = project?.status;
	useEffect(() => {
		if (status) onStatus();
	}, [status, onStatus]);
	if (!project) return <Loading of={polled} />;
	return (
		<>
			<Head project={project} working={working} onChanged={refresh} />
			{project.analyses > 0 && (
				<Tabs.Root value={tab} onValueChange={(next) => setTab(next as Tab)}>
					<Tabs.List aria-label="about the project" className="mb-3 flex gap-1">
						{TABS.map((one) => (
							<Tabs.Trigger
								key={one}
								value={one}
								className="rounded-md px-3 py-1 font-medium text-soft capitalize hover:bg-raised data-[state=active]:bg-raised data-[state=active]:text-ink"
							>
								{one}
							</Tabs.Trigger>
						))}
					</Tabs.List>
					<Tabs.Content value="report">
						<Report
							key={project.analyses}
							id={id}
							onImprove={(wanted) => {
								setFile(wanted);
								setTab("improve");
							}}
						/>
					</Tabs.Content>
					<Tabs.Content value="trend">
						<Trend key={project.analyses} id={id} />
					</Tabs.Content>
					<Tabs.Content value="improve">
						<Improve id={id} file={file} onFile={setFile} />
					</Tabs.Content>
				</Tabs.Root>
			)}
			{project.analyses === 0 && project.status === "imported" && (
				<Empty>Analyze it to see what is in it and what could be better.</Empty>
			)}
		</>
	);
}

function Head({ project, working, onChanged }: { project: ProjectView; working: boolean; onChanged: () => void }) {
	const [review, setReview] = useState(false);
	const [problem, setProblem] = useState<string | null>(null);
	const [asking, setAsking] = useState(false);
	const pathOf = usePathOf(project.project_id);
	const analyze = async () => {
		setAsking(true);
		setProblem(null);
		try {
			const key = crypto.randomUUID();
			const options = { method: "POST", body: { review }, key, background: true, timeoutMs: 15 * 60_000 };
			await call(pathOf("/analyze"), options);
		} catch (error) {
			setProblem(describe(error));
		} finally {
			setAsking(false);
		}
		onChanged();
	};
	return (
		<Panel title={project.name} actions={<Status of={project.status} />}>
			<p className="break-all font-mono text-soft text-xs">{project.source}</p>
			<p className="text-xs">
				{count(project.files, "file")}, {bytes(project.size_bytes)}
				{project.skipped ? `, ${number(project.skipped)} left out` : ""}
				{project.languages.map(({ name, lines }) => ` · ${name} ${count(lines, "line")}`).join("")}
			</p>
			{project.progress && <Progress of={project.progress} />}
			{project.error && (
				<Alert>
					{project.error.message}
					{project.error.hint && <span className="block text-soft">{project.error.hint}</span>}
				</Alert>
			)}
			<div className="mt-2 flex flex-wrap items-center gap-3">
				<Button tone="accent" disabled={working || asking || project.files === 0} onClick={() => void analyze()}>
					{working ? `${project.status.replace(/^./, (first) => first.toUpperCase())}…` : "Analyze"}
				</Button>
				<label className="hit gap-1.5 text-xs">
					<input type="checkbox" checked={review} onChange={(event) => setReview(event.target.checked)} />
					also ask the model for a review
				</label>
				<a
					className="hit text-accent text-xs underline"
					href={`${API_BASE}${pathOf("/patch")}`}
					download="changes.patch"
				>
					Patch of what was applied
				</a>
			</div>
			<Alert>{problem}</Alert>
		</Panel>
	);
}

function Progress({ of: { done, total } }: { of: NonNullable<ProjectView["progress"]> }) {
	return (
		<p className="mt-1 flex items-center gap-2 text-soft text-xs tabular-nums">
			<progress aria-label="how far it is" max={total ?? undefined} value={total ? done : undefined} />
			{number(done)}
			{total != null && ` of ${number(total)}`}
		</p>
	);
}
