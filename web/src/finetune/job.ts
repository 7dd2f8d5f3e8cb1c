"use client";

import { useCallback, useEffect, useState } from "react";
import { call, describe } from "@/api/client";
import type { JobMessage, JobView } from "@/api/shapes";
import { followSocket } from "@/api/socket";
import { applyJob, type LiveJob, NO_JOB } from "./fold";

/** Curves need no more than this many looks a second. */
const FRAME_MS = 100;

export type FollowedJob = LiveJob & { connected: boolean; problem: string | null; cancel: () => Promise<void> };

/** Follows a job from its first step to its end, through lost connections. */
export function useJob(id: string): FollowedJob {
	const [live, setLive] = useState<LiveJob>(NO_JOB);
	const [connected, setConnected] = useState(false);
	const [problem, setProblem] = useState<string | null>(null);
	/** Why the job could not be read; its stream may know it before that. */
	const [unread, setUnread] = useState<string | null>(null);

	useEffect(() => {
		let waiting: JobMessage[] = [];
		let timer: ReturnType<typeof setTimeout> | null = null;
		let seq = 0;
		const takeIn = () => {
			timer = null;
			const messages = waiting;
			waiting = [];
			setLive((now) => applyJob(now, ...messages));
		};
		const abort = new AbortController();
		// The stream may say only what happens from now on; what the job is, is asked for.
		call<JobView>(`/finetune/jobs/${encodeURIComponent(id)}`, { signal: abort.signal })
			.then((job) => setLive((now) => (now.job ? now : { ...now, job })))
			.catch((error) => !abort.signal.aborted && setUnread(describe(error)));
		const stop = followSocket<JobMessage>({
			path: () => `/ws/finetune/${encodeURIComponent(id)}?after=${seq}`,
			isLast: (message) => message.type === "final",
			onMessage: (message) => {
				if (message.type === "progress") seq = Math.max(seq, message.seq);
				waiting.push(message);
				timer ??= setTimeout(takeIn, FRAME_MS);
			},
			onConnection: setConnected,
			onRefused: setProblem,
		});
		return () => {
			abort.abort();
			stop();
			if (timer) clearTimeout(timer);
		};
	}, [id]);

	const cancel = useCallback(async () => {
		try {
			await call(`/finetune/jobs/${encodeURIComponent(id)}/cancel`, { method: "POST", body: {} });
			setProblem(null);
		} catch (error) {
			setProblem(describe(error));
		}
	}, [id]);

	return { ...live, connected, problem: problem ?? (live.job ? null : unread), cancel };
}
