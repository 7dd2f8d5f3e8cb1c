"use client";

import clsx from "clsx";
import Link from "next/link";
import { usePolled } from "@/api/polling";
import type { components } from "@/api/schema";
import { Panel, Status } from "@/ui";
import { count } from "@/ui/words";
import { branches } from "./branches";

const INDENT_PX = 20;

/** What is known of a run ahead of what the server has noted of it. */
type Live = { status: string; steps: unknown[] };

/** The runs that this one is connected with, by forks and by chains. Nothing when it stands alone. */
export function Tree({ id, live }: { id: string; live: Live }) {
	const path = `/runs/${encodeURIComponent(id)}/tree`;
	const { data } = usePolled<components["schemas"]["RunTree"]>(path, 10_000);
	if (!data || data.items.length < 2) return null;
	return (
		<Panel title="Branches">
			<ul>
				{branches(data.items, data.edges).map(({ run, depth, edge }) => (
					<li key={run.run_id} style={{ paddingLeft: depth * INDENT_PX }} className="flex min-w-0 items-center gap-2">
						<Status of={run.run_id === id ? live.status : run.status} />
						<Link
							href={`/ui/runs/?id=${run.run_id}`}
							prefetch={false}
							aria-current={run.run_id === id}
							title={run.task}
							className={clsx("min-w-0 flex-1 truncate py-0.5", run.run_id === id ? "font-semibold" : "text-accent")}
						>
							{run.task}
						</Link>
						<span className="max-w-[45%] shrink-0 truncate text-soft text-xs">
							{edge?.kind === "fork" && `from step ${edge.at_seq}, `}
							{edge?.kind === "chain" && "waits for its answer, "}
							{run.chain && `${run.chain.name}, `}
							{count(run.run_id === id ? Math.max(live.steps.length, run.steps) : run.steps, "step")}
						</span>
						{run.run_id !== id && (
							<Link
								href={`/ui/runs/?id=${id}&with=${run.run_id}`}
								prefetch={false}
								className="hit shrink-0 text-accent text-xs"
								aria-label={`compare with ${run.run_id}`}
							>
								compare
							</Link>
						)}
					</li>
				))}
			</ul>
		</Panel>
	);
}
