"use client";

import { useEffect, useState } from "react";
import { call, describe } from "@/api/client";
import { usePolled } from "@/api/polling";
import type { Items, ProjectTool } from "@/api/shapes";
import { Alert, Button, Dialog, Loading, Panel, Status } from "@/ui";

type Tools = Items<ProjectTool>;

/** What the status of a tool is in words where its name does not say it. */
const STATUSES: Record<string, string> = { path: "on this machine" };

/** An installation fetches packages. */
const PATIENCE_MS = 15 * 60_000;

/** The linters and type checkers that an analysis finds, and a way to get those that are missing. */
export function Linters() {
	const listed = usePolled<Tools>("/projects/tools", 60_000);
	/** What is known after a change, until it is read again. */
	const [changed, setChanged] = useState<Tools | null>(null);
	// biome-ignore lint/correctness/useExhaustiveDependencies: each reading takes its place
	useEffect(() => setChanged(null), [listed.data]);
	const [busy, setBusy] = useState<string | null>(null);
	/** The one that is about to be removed: where no registry can be reached, nothing brings it back. */
	const [asked, setAsked] = useState<string | null>(null);
	const [problem, setProblem] = useState<string | null>(null);
	const act = async (name: string, what: "install" | "remove") => {
		setBusy(name);
		setAsked(null);
		setProblem(null);
		try {
			const done =
				what === "install"
					? call<Tools>("/projects/tools", { method: "POST", body: { names: [name] }, timeoutMs: PATIENCE_MS })
					: call<Tools>(`/projects/tools/${encodeURIComponent(name)}`, { method: "DELETE" });
			setChanged(await done);
		} catch (error) {
			setProblem(describe(error));
		} finally {
			setBusy(null);
		}
	};
	const tools = (changed ?? listed.data)?.items ?? [];
	return (
		<Panel title="Linters">
			<Loading of={listed} />
			<Alert>{problem}</Alert>
			<ul>
				{tools.map((tool) => (
					<li key={tool.name} className="border-line border-b py-1.5 last:border-0">
						<span className="flex flex-wrap items-center gap-2">
							<span className="font-medium">{tool.name}</span>
							<Status of={STATUSES[tool.status] ?? tool.status} />
							<span className="text-soft text-xs">{tool.installed_version}</span>
							<span className="ml-auto">
								{tool.status === "installed" ? (
									<Button disabled={busy !== null} onClick={() => setAsked(tool.name)}>
										<span className="relative">
											{busy === tool.name ? "Removing…" : "Remove"}
											<span className="sr-only"> {tool.name}</span>
										</span>
									</Button>
								) : (
									tool.status === "missing" &&
									tool.version && (
										<Button disabled={busy !== null} onClick={() => void act(tool.name, "install")}>
											<span className="relative">
												{busy === tool.name ? "Installing…" : "Install"}
												<span className="sr-only"> {tool.name}</span> {tool.version}
											</span>
										</Button>
									)
								)}
							</span>
						</span>
						<span className="block text-soft text-xs">{tool.languages.join(", ")}</span>
						{tool.fix && (tool.status !== "missing" || !tool.version || !tool.allowed) && (
							<span className="block break-words text-xs">{tool.fix}</span>
						)}
					</li>
				))}
			</ul>
			<Dialog
				open={asked !== null}
				onClose={() => setAsked(null)}
				title={`Remove ${asked}?`}
				close="Keep it"
				actions={
					asked && (
						<Button tone="danger" onClick={() => void act(asked, "remove")}>
							Remove
						</Button>
					)
				}
			>
				<p>To install it again, it is fetched from its registry.</p>
			</Dialog>
		</Panel>
	);
}
