"use client";

import { useEffect, useState } from "react";
import { call, describe } from "@/api/client";
import { usePolled } from "@/api/polling";
import type { FileChanged, FileText, Page, ProjectFile, ProposalAccepted, ProposalView } from "@/api/shapes";
import { Alert, Button, Empty, Field, Input, Loading, Panel, Select, Status } from "@/ui";
import { count, moment, number } from "@/ui/words";
import { Diff } from "./Diff";
import { usePathOf } from "./namespace";
import type { PathOf } from "./paths";

const PATIENCE_MS = 15 * 60_000;

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

function Ask({
	pathOf,
	file,
	onFile,
	onProposed,
}: {
	pathOf: PathOf;
	file: string;
	onFile: (file: string) => void;
	onProposed: (id: string) => void;
}) {
	const files = usePolled<Page<ProjectFile>>(pathOf("/files", { limit: "500" }), 60_000);
	const [instruction, setInstruction] = useState("");
	const [asking, setAsking] = useState(false);
	const [problem, setProblem] = useState<string | null>(null);
	const ask = async () => {
		setAsking(true);
		setProblem(null);
		try {
			const body = { file: file.trim(), ...(instruction.trim() ? { instruction: instruction.trim() } : {}) };
			const key = crypto.randomUUID();
			const options = { method: "POST", body, key, background: true, timeoutMs: PATIENCE_MS };
			const proposal = await call<ProposalAccepted>(pathOf("/improve"), options);
			onProposed(proposal.proposal_id);
		} catch (error) {
			setProblem(describe(error));
		} finally {
			setAsking(false);
		}
	};
	return (
		<Panel title="Improve a file">
			<form
				aria-label="improve a file"
				className="grid gap-2 md:grid-cols-[1fr_1fr_auto] md:items-end"
				onSubmit={(event) => {
					event.preventDefault();
					void ask();
				}}
			>
				<Field label="file">
					<Input list="project-files" value={file} onChange={(event) => onFile(event.target.value)} />
					<datalist id="project-files">
						{files.data?.items.map((one) => (
							<option key={one.path} value={one.path}>
								{count(one.findings, "finding")}
							</option>
						))}
					</datalist>
				</Field>
				<Field label="what to do; its findings, when empty">
					<Input value={instruction} onChange={(event) => setInstruction(event.target.value)} />
				</Field>
				<Button type="submit" tone="accent" disabled={asking || !file.trim()}>
					{asking ? "The model writes…" : "Propose"}
				</Button>
			</form>
			<Alert>{problem}</Alert>
		</Panel>
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
