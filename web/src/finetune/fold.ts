/** A job as the page sees it: the fold of what its stream sends. Pure. */

import type { JobMessage, JobView } from "@/api/shapes";

export type Point = { step: number; loss: number; learningRate: number; evalLoss: number | null };

export type LiveJob = {
	job: JobView | null;
	points: Point[];
	/** `seq` of the last message of progress: where a lost connection goes on. */
	seq: number;
	ended: boolean;
};

export const NO_JOB: LiveJob = { job: null, points: [], seq: 0, ended: false };

/** More points than this are thinned out: a screen has no more columns anyway. */
export const MAX_POINTS = 10_000;

/** Applies messages in their order; progress that was seen before changes nothing. */
export function applyJob(live: LiveJob, ...messages: JobMessage[]): LiveJob {
	const next = { ...live, points: [...live.points] };
	for (const message of messages) take(next, message);
	return next;
}

function take(live: LiveJob, message: JobMessage): void {
	switch (message.type) {
		case "start":
			if (message.job && !live.ended) live.job = message.job;
			return;
		case "progress": {
			if (message.seq <= live.seq || live.ended) return;
			live.seq = message.seq;
			const { step, loss, learning_rate: learningRate, eval_loss: evalLoss } = message;
			live.points.push({ step, loss, learningRate, evalLoss: evalLoss ?? null });
			if (live.points.length > MAX_POINTS) live.points = thinned(live.points);
			if (live.job) {
				const { type: _, seq: __, eval_loss: ___, ...figures } = message;
				live.job = { ...live.job, ...figures, status: "running", eval_loss: evalLoss ?? live.job.eval_loss };
			}
			return;
		}
		case "final":
			live.job = message.job;
			live.ended = true;
			return;
	}
}

const ENDS: readonly string[] = ["succeeded", "failed", "cancelled"];

/** The jobs of a list, one of them as it was seen since: a list that was read before its end has it as it was then. */
export function caughtUp(listed: JobView[], seen: JobView | null): JobView[] {
	if (!seen) return listed;
	return listed.map((job) =>
		job.job_id === seen.job_id && !ENDS.includes(job.status) && isLater(seen, job) ? seen : job,
	);
}

function isLater(seen: JobView, listed: JobView): boolean {
	return ENDS.includes(seen.status) || (listed.status === "queued" && seen.status === "running");
}

/** Every other point; those with a held-out loss stay while they are few. */
function thinned(points: Point[]): Point[] {
	const kept = points.filter((point, at) => at % 2 === 1 || point.evalLoss !== null);
	return kept.length <= (MAX_POINTS * 3) / 4 ? kept : points.filter((_, at) => at % 2 === 1);
}

/** Exponential mean that is not drawn to zero at its beginning: https://arxiv.org/abs/1412.6980, section 3. */
export function smoothed(values: number[], weight: number): number[] {
	let [mean, total] = [0, 1];
	return values.map((value) => {
		mean = weight * mean + (1 - weight) * value;
		total *= weight;
		return mean / (1 - total);
	});
}
