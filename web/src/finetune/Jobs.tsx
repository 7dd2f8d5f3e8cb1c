"use client";

import clsx from "clsx";
import type { Polled } from "@/api/polling";
import type { JobView, Page } from "@/api/shapes";
import { Empty, Loading, Panel, Status, Table } from "@/ui";
import { moment } from "@/ui/words";

/** Every job, newest first. */
export function Jobs({
	page,
	chosen,
	onChoose,
}: {
	page: Polled<Page<JobView>>;
	chosen: string | null;
	onChoose: (id: string) => void;
}) {
	const jobs = page.data?.items ?? [];
	return (
		<Panel title="Trainings">
			<Loading of={page} />
			{page.data && jobs.length === 0 && <Empty>No trainings: upload a dataset and start one.</Empty>}
			{jobs.length > 0 && (
				<Table head={["model", "status", "step", "loss", "held out", "begun"]}>
					{jobs.map((job) => (
						<tr key={job.job_id} className={clsx(job.job_id === chosen && "bg-raised")}>
							<td>
								<button
									type="button"
									aria-pressed={job.job_id === chosen}
									className="hit text-left font-medium text-accent"
									onClick={() => onChoose(job.job_id)}
								>
									{job.name}
								</button>
								<span className="block text-soft text-xs">
									{job.method} on {job.dataset}
								</span>
							</td>
							<td>
								<Status of={job.status} />
							</td>
							<td className="tabular-nums">
								{job.step} of {job.max_steps}
							</td>
							<td className="tabular-nums">{job.loss?.toFixed(3) ?? "–"}</td>
							<td className="tabular-nums">{job.eval_loss?.toFixed(3) ?? "–"}</td>
							<td className="text-soft text-xs">{moment(job.created_at)}</td>
						</tr>
					))}
				</Table>
			)}
		</Panel>
	);
}
