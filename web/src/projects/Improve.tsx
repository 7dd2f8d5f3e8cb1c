"use client";

import { useEffect, useState } from "react";
import { call, describe } from "@/api/client";
import { usePolled } from "@/api/polling";
import type { FileChanged, FileText, Page, ProposalView, TestRun, TestRuns } from "@/api/shapes";
import { Alert, Button, Empty, Field, Loading, Panel, Select, Status } from "@/ui";
import { count, moment, number } from "@/ui/words";
import { Ask } from "./Ask";
import { Diff } from "./Diff";
import { usePathOf } from "./namespace";
import type { PathOf } from "./paths";

type Props = { id: string; file: string; onFile: (file: string) => void };

/** Asks for a rewrite of one file, shows it as a diff, and changes the copy only when told to. */
export function Improve({ id, file, onFile }: Props) {
	const pathOf = usePathOf(id);
	const proposals = usePolled<Page<ProposalView>>(pathOf("/proposals", { limit: "50" }), 5_000);
	const [chosen, setChosen] = useState<string | null>(null);
	const shown = chosen ?? proposals.data?.items[0]?.proposal_id ?? null;
	return (
		<div className="space-y-3">
			<Ask
				pathOf={pathOf}
				file={file}
				onFile={onFile}
				onProposed={(proposal) => {
					setChosen(proposal);
					proposals.refresh();
				}}
			/>
			<Loading of={proposals} />
			{proposals.data?.items.length === 0 && <Empty>Nothing was proposed yet.</Empty>}
			{(proposals.data?.items.length ?? 0) > 0 && (
				<Field label="proposals">
					<Select value={shown ?? undefined} onChange={(event) => setChosen(event.target.value)}>
						{proposals.data?.items.map((one) => (
							<option key={one.proposal_id} value={one.proposal_id}>
								{one.file}: {one.status}, {moment(one.created_at)}
							</option>
						))}
					</Select>
				</Field>
			)}
			{shown && <Proposal key={shown} pathOf={pathOf} id={shown} onChanged={proposals.refresh} />}
		</div>
	);
}

function Proposal({ pathOf, id, onChanged }: { pathOf: PathOf; id: string; onChanged: () => void }) {
	const [settled, setSettled] = useState(false);
	const path = pathOf(`/proposals/${encodeURIComponent(id)}`);
	const polled = usePolled<ProposalView>(path, settled ? 30_000 : 1_000);
	const { data, refresh } = polled;
	const [problem, setProblem] = useState<string | null>(null);
	const [acting, setActing] = useState(false);
	// A change that was taken back stays a proposal that was applied: what the copy has tells which one it is.
	const applied = data?.status === "applied" ? pathOf("/file", { path: data.file }) : null;
	const copy = usePolled<FileText>(applied, 30_000);
	useEffect(() => setSettled(data !== null && data.status !== "proposing"), [data]);
	if (!data) return <Loading of={polled} />;
	const { file, status, improves } = data;
	const act = async (what: "apply" | "revert") => {
		setActing(true);
		try {
			const body = { file, confirm: true, ...(what === "apply" ? { proposal_id: id } : {}) };
			await call<FileChanged>(pathOf(`/${what}`), { method: "POST", body, key: crypto.randomUUID() });
			setProblem(null);
		} catch (failed) {
			setProblem(describe(failed));
		} finally {
			setActing(false);
		}
		refresh();
		copy.refresh();
		onChanged();
	};
	return (
		<Panel title={file} actions={<Status of={status} />}>
			<p>
				{count(data.findings_before, "finding")} before, {number(data.findings_after)} after
				{status !== "proposing" && !improves && (
					<span className="text-warn"> · it improves nothing that the analysis sees</span>
				)}
			</p>
			{data.note && <p className="break-words text-soft">{data.note}</p>}
			{data.tests && <Tests of={data.tests} />}
			<Alert>{problem}</Alert>
			{data.diff && <Diff diff={data.diff} />}
			<div className="mt-3 flex gap-2">
				{status === "proposed" && (
					<Button tone="accent" disabled={acting} onClick={() => void act("apply")}>
						Apply to the copy
					</Button>
				)}
				{copy.data?.sha256 === data.after_sha256 && (
					<Button tone="danger" disabled={acting} onClick={() => void act("revert")}>
						Revert
					</Button>
				)}
				{copy.data && copy.data.sha256 !== data.after_sha256 && (
					<p className="text-soft">The copy does not have this change any more.</p>
				)}
			</div>
		</Panel>
	);
}

/** What the project's own tests said before and after a rewrite. */
function Tests({ of: { command, before, after } }: { of: TestRuns }) {
	return (
		<section aria-label="tests" className="my-2">
			<h3 className="break-all font-mono text-xs">{command.join(" ")}</h3>
			<TestsOnce when="before" run={before} />
			<TestsOnce when="after" run={after} />
		</section>
	);
}

function TestsOnce({ when, run }: { when: string; run: TestRun }) {
	return (
		<details>
			<summary className="cursor-pointer py-1.5 text-xs">
				{when}: <Status of={run.passed ? "passed" : "failed"} />{" "}
				<span className="text-soft">
					{run.exit_code == null ? "ended without an exit code" : `exit code ${run.exit_code}`}
					{`, ${number(run.took_ms)} ms`}
				</span>
			</summary>
			{/* biome-ignore lint/a11y/noNoninteractiveTabindex: what scrolls must be reached by keyboard */}
			<pre tabIndex={0} className="max-h-60 overflow-auto whitespace-pre-wrap break-words font-mono text-xs">
				{run.output || "It wrote nothing."}
			</pre>
		</details>
	);
}
