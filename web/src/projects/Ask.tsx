"use client";

import { useState } from "react";
import { call, describe } from "@/api/client";
import { usePolled } from "@/api/polling";
import type { Page, ProjectFile, ProposalAccepted } from "@/api/shapes";
import { Alert, Button, Field, Input, Panel, Select } from "@/ui";
import { count } from "@/ui/words";
import { bodyOf, CANDIDATES, NO_WISHES, type Wishes } from "./asked";
import type { PathOf } from "./paths";

const PATIENCE_MS = 15 * 60_000;

type Props = { pathOf: PathOf; file: string; onFile: (file: string) => void; onProposed: (id: string) => void };

/** Asks for a rewrite, with all that the command line can say of it. */
export function Ask({ pathOf, file, onFile, onProposed }: Props) {
	const files = usePolled<Page<ProjectFile>>(pathOf("/files", { limit: "500" }), 60_000);
	const [wishes, setWishes] = useState<Wishes>(NO_WISHES);
	const [asking, setAsking] = useState(false);
	const [problem, setProblem] = useState<string | null>(null);
	const set = (change: Partial<Wishes>) => setWishes((before) => ({ ...before, ...change }));
	const ask = async () => {
		const { body, problem } = bodyOf({ file, ...wishes });
		setProblem(problem);
		if (!body) return;
		setAsking(true);
		try {
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
				className="space-y-2"
				onSubmit={(event) => {
					event.preventDefault();
					void ask();
				}}
			>
				<div className="grid gap-2 md:grid-cols-[1fr_1fr_auto] md:items-end">
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
						<Input value={wishes.instruction} onChange={(event) => set({ instruction: event.target.value })} />
					</Field>
					<Button type="submit" tone="accent" disabled={asking || !file.trim()}>
						{asking ? "The model writes…" : "Propose"}
					</Button>
				</div>
				<MoreWishes wishes={wishes} onChange={set} />
			</form>
			<Alert>{problem}</Alert>
		</Panel>
	);
}

function MoreWishes({ wishes, onChange }: { wishes: Wishes; onChange: (change: Partial<Wishes>) => void }) {
	return (
		<details>
			<summary className="cursor-pointer py-1.5 text-soft text-xs">
				names that may go, rewrites to choose from, tests
			</summary>
			<div className="mt-1 grid gap-2 md:grid-cols-[1fr_auto_1fr] md:items-end">
				<Field label="public names that the rewrite may take out, such as f or C.m; all others stay">
					<Input
						autoCapitalize="none"
						spellCheck={false}
						value={wishes.mayRemove}
						onChange={(event) => onChange({ mayRemove: event.target.value })}
					/>
				</Field>
				<Field label="rewrites to choose from">
					<Select value={wishes.candidates} onChange={(event) => onChange({ candidates: event.target.value })}>
						{CANDIDATES.map((many) => (
							<option key={many}>{many}</option>
						))}
					</Select>
				</Field>
				<Field label="the project's own tests, run before and after in the sandbox: a program and its arguments">
					<Input
						autoCapitalize="none"
						spellCheck={false}
						placeholder="python3 -m unittest"
						value={wishes.tests}
						onChange={(event) => onChange({ tests: event.target.value })}
					/>
				</Field>
			</div>
		</details>
	);
}
