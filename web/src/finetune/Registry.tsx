"use client";

import { useState } from "react";
import { call, describe } from "@/api/client";
import type { Polled } from "@/api/polling";
import type { ModelVersionView, Page, Stage } from "@/api/shapes";
import { Alert, Button, Dialog, Empty, Loading, Panel, Status, Table } from "@/ui";
import { bytes, moment, number } from "@/ui/words";
import { SideBySide } from "./SideBySide";

/** What may follow a stage, in words for a button. */
const NEXT: Record<Stage, { to: Stage; label: string }[]> = {
	candidate: [
		{ to: "ready", label: "Make ready" },
		{ to: "retired", label: "Retire" },
	],
	ready: [{ to: "retired", label: "Retire" }],
	retired: [{ to: "candidate", label: "Take back" }],
};

/** What a metric is called where its name does not say it. */
const METRICS: Record<string, string> = {
	eval_loss: "held out",
	eval_loss_base: "held out, its base",
	parity_max_difference: "changed by merging, at most",
};

/** The versions of every tuned model: how good they are, where they stand, and a way to try them. */
export function Registry({ page }: { page: Polled<Page<ModelVersionView>> }) {
	const [trying, setTrying] = useState<ModelVersionView | null>(null);
	const [problem, setProblem] = useState<string | null>(null);
	const [moving, setMoving] = useState(false);
	const versions = page.data?.items ?? [];
	const move = async ({ model, version }: ModelVersionView, stage: Stage) => {
		setMoving(true);
		try {
			const path = `/finetune/registry/${encodeURIComponent(model)}/${version}/stage`;
			await call(path, { method: "POST", body: { stage } });
			setProblem(null);
		} catch (error) {
			setProblem(describe(error));
		} finally {
			setMoving(false);
		}
		page.refresh();
	};
	return (
		<Panel title="Registry">
			<Alert>{problem}</Alert>
			<Loading of={page} />
			{page.data && versions.length === 0 && <Empty>No versions: a training that succeeds makes one.</Empty>}
			{versions.length > 0 && (
				<Table head={["version", "stage", "metrics", "size", "made", ""]}>
					{versions.map((one) => (
						<tr key={`${one.model}@${one.version}`}>
							<td>
								<span className="font-medium">
									{one.model}@{one.version}
								</span>
								<span className="block text-soft text-xs">
									{one.method} of {one.base_model}
								</span>
							</td>
							<td>
								<Status of={one.stage} />
								{!one.gate.passed && (
									<span className="block text-warn text-xs">{one.gate.reason ?? "a gate was not passed"}</span>
								)}
							</td>
							<td className="text-xs tabular-nums">
								{Object.entries(one.metrics).map(([name, value]) => (
									<span key={name} className="block whitespace-nowrap">
										{METRICS[name] ?? name.replaceAll("_", " ")}: {number(value)}
									</span>
								))}
							</td>
							<td className="whitespace-nowrap tabular-nums">{bytes(one.size_bytes)}</td>
							<td className="text-soft text-xs">{moment(one.created_at)}</td>
							<td>
								<span className="flex flex-wrap gap-1">
									<Button aria-label={`Try ${one.model}@${one.version}`} onClick={() => setTrying(one)}>
										Try
									</Button>
									{NEXT[one.stage]?.map(({ to, label }) => (
										<Button
											key={to}
											tone="quiet"
											// The reason stands beside its stage.
											disabled={moving || (to === "ready" && !one.gate.passed)}
											aria-label={`${label} ${one.model}@${one.version}`}
											onClick={() => void move(one, to)}
										>
											{label}
										</Button>
									))}
								</span>
							</td>
						</tr>
					))}
				</Table>
			)}
			<Dialog
				wide
				open={trying !== null}
				onClose={() => setTrying(null)}
				title={trying ? `${trying.model}@${trying.version} beside ${trying.base_model}` : ""}
			>
				{trying && <SideBySide version={trying} />}
			</Dialog>
		</Panel>
	);
}
