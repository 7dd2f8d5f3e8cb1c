"use client";

import { useCallback, useState } from "react";
import { usePolled } from "@/api/polling";
import type { DatasetView, JobDefaults, JobView, ModelVersionView, Page } from "@/api/shapes";
import { Datasets } from "./Datasets";
import { caughtUp } from "./fold";
import { JobDetail } from "./JobDetail";
import { Jobs } from "./Jobs";
import { Registry } from "./Registry";
import { StartJob } from "./StartJob";

/** From a file of examples to a model that can be tried: datasets, jobs with their curves, versions. */
export function Finetuning() {
	const datasets = usePolled<Page<DatasetView>>("/finetune/datasets?limit=200", 15_000);
	const jobs = usePolled<Page<JobView>>("/finetune/jobs?limit=50", 3_000);
	const registry = usePolled<Page<ModelVersionView>>("/finetune/registry?limit=200", 10_000);
	const defaults = usePolled<JobDefaults>("/finetune/defaults", 60_000);
	const [chosen, setChosen] = useState<string | null>(null);
	/** The job that is open, as it was when its status last changed: its stream is ahead of the list. */
	const [seen, setSeen] = useState<JobView | null>(null);
	const refreshVersions = registry.refresh;
	const onStatus = useCallback(
		(job: JobView) => {
			setSeen(job);
			refreshVersions();
		},
		[refreshVersions],
	);
	const listed = { ...jobs, data: jobs.data && { ...jobs.data, items: caughtUp(jobs.data.items, seen) } };
	const job = chosen ?? jobs.data?.items[0]?.job_id ?? null;
	return (
		<div className="grid grid-cols-[minmax(0,1fr)] items-start gap-3 p-3 lg:grid-cols-[22rem_minmax(0,1fr)]">
			<h1 className="sr-only">Fine-tuning</h1>
			<div className="space-y-3">
				<Datasets page={datasets} />
				<StartJob
					datasets={datasets.data?.items ?? []}
					defaults={defaults.data}
					onStarted={(id) => {
						setChosen(id);
						jobs.refresh();
					}}
				/>
			</div>
			<div className="min-w-0 space-y-3">
				<Jobs page={listed} chosen={job} onChoose={setChosen} />
				{job && <JobDetail key={job} id={job} onStatus={onStatus} />}
				<Registry page={registry} />
			</div>
		</div>
	);
}
