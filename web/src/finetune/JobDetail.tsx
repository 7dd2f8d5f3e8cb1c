"use client";

import { useEffect, useMemo, useRef, useState } from "react";
import type { JobView } from "@/api/shapes";
import { Curve, type Line } from "@/charts/Curve";
import { Alert, Button, Dialog, Loading, Panel, Status } from "@/ui";
import { number, seconds } from "@/ui/words";
import { type Point, smoothed } from "./fold";
import { useJob } from "./job";

const SMOOTHING = 0.9;

/** One job live: how far, how well, and a way to stop it. `onStatus`: it has another status than before. */
export function JobDetail({ id, onStatus }: { id: string; onStatus: (job: JobView) => void }) {
	const { job, points, ended, connected, problem, cancel } = useJob(id);
	const [isAsked, setAsked] = useState(false);
	const told = useRef<string | null>(null);
	useEffect(() => {
		if (!job || told.current === job.status) return;
		told.current = job.status;
		onStatus(job);
	}, [job, onStatus]);
	const { steps, loss, rate } = useLines(points);
	if (!job) return <Loading of={{ data: null, error: problem }} />;
	const going = !ended && (job.status === "queued" || job.status === "running");
	return (
		<Panel
			title={job.name}
			actions={
				<span className="flex items-center gap-2">
					<Status of={job.status} />
					{going && (
						<Button tone="danger" onClick={() => setAsked(true)}>
							Cancel…
						</Button>
					)}
				</span>
			}
		>
			<Dialog
				open={isAsked && going}
				onClose={() => setAsked(false)}
				title={`Cancel the training ${job.name}?`}
				close="Let it go on"
				actions={
					<Button
						tone="danger"
						onClick={() => {
							setAsked(false);
							void cancel();
						}}
					>
						Cancel the training
					</Button>
				}
			>
				<p>
					It is at step {number(job.step)} of {number(job.max_steps)}. A training that is cancelled makes no version and
					can't go on later: another one begins at its first step.
				</p>
			</Dialog>
			<p className="font-mono text-soft text-xs">{id}</p>
			<progress className="my-1 w-full" max={job.max_steps || 1} value={job.step} aria-label="steps done" />
			<p className="text-xs tabular-nums">
				step {number(job.step)} of {number(job.max_steps)}
				{job.loss != null && ` · loss ${job.loss.toFixed(4)}`}
				{job.eval_loss != null && ` · held out ${job.eval_loss.toFixed(4)}`}
				{going && job.tokens_per_s != null && ` · ${number(Math.round(job.tokens_per_s))} tokens/s`}
				{going && job.eta_s != null && ` · ${seconds(job.eta_s)} to go`}
				{job.model && ` · made ${job.model}`}
			</p>
			{going && !connected && points.length > 0 && <p className="text-warn text-xs">connection lost; joining again…</p>}
			<Alert>{problem}</Alert>
			{job.error && (
				<Alert>
					{job.error.message}
					{job.error.hint && <span className="block text-soft">{job.error.hint}</span>}
				</Alert>
			)}
			<div className="mt-2 grid gap-3 xl:grid-cols-2">
				<Curve title="Loss" x={steps} xLabel="step" lines={loss} />
				<Curve title="Learning rate" x={steps} xLabel="step" lines={rate} />
			</div>
		</Panel>
	);
}

function useLines(points: Point[]): { steps: number[]; loss: Line[]; rate: Line[] } {
	return useMemo(() => {
		const losses = points.map((point) => point.loss);
		return {
			steps: points.map((point) => point.step),
			loss: [
				{ label: "loss", values: losses, color: "soft" },
				{ label: "smoothed", values: smoothed(losses, SMOOTHING), color: "accent" },
				{ label: "held out", values: points.map((point) => point.evalLoss), color: "warn", dots: true },
			],
			rate: [{ label: "learning rate", values: points.map((point) => point.learningRate), color: "good" }],
		};
	}, [points]);
}
