"use client";

import clsx from "clsx";
import Link from "next/link";
import { usePolled } from "@/api/polling";
import type { components } from "@/api/schema";
import { Panel, Status } from "@/ui";
import { count } from "@/ui/words";
import { branches } from "./branches";

const INDENT_PX = 20;

/** The runs that this one is connected with, by forks and by chains. Nothing when it stands alone. */
export function Tree({ id }: { id: string }) {
	const path = `/runs/${encodeURIComponent(id)}/tree`;
	const { data } = usePolled<components["schemas"]["RunTree"]>(path, 10_000);
	if (!data || data.items.length < 2) return null;
	return (
		<Panel title="Branches">
			<ul>
				{branches(data.items, data.edges).map(({ run, depth, edge }) => (
					<li key={run.run_id} style={{ paddingLeft: depth * INDENT_PX }} className="flex items-center gap-2">
						<Status of={run.status} />
						<Link
							href={`/ui/runs/?id=${run.run_id}`}
							prefetch={false}
							aria-current={run.run_id === id}
							className={clsx("min-w-0 truncate py-0.5", run.run_id === id ? "font-semibold" : "text-accent")}
						>
							{run.task}
						</Link>
						<span className="whitespace-nowrap text-soft text-xs">
							{edge?.kind === "fork" && `from step ${edge.at_seq}, `}
							{edge?.kind === "chain" && "waits for its answer, "}
							{run.chain && `${run.chain.name}, `}
							{count(run.steps, "step")}
						</span>
						{run.run_id !== id && (
							<Link
								href={`/ui/runs/?id=${id}&with=${run.run_id}`}
								prefetch={false}
								className="hit text-accent text-xs"
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
