"use client";

/** The runs that this page follows. Messages are taken in a few at a time, however fast they come. */

import { useEffect } from "react";
import { create } from "zustand";
import {
	ApiError,
	type ChainAccepted,
	type ChainBody,
	call,
	describe,
	type RunAccepted,
	type RunView,
} from "@/api/client";
import { answer, apply, hasEnded, type LiveRun, lastSeq, pendingApprovals, type RunMessage, unknownRun } from "./fold";
import { followRun } from "./stream";

type Followed = LiveRun & {
	connected: boolean;
	/** Why it can't be followed, or why the last thing that was asked of it was refused: the run itself may go on. */
	problem: string | null;
	/** The server does not show its stream: nothing more is heard of it. */
	refused: boolean;
};

type RunsState = {
	runs: Record<string, Followed>;
	/** Starts a chain and follows its runs; gives name → run. The key makes a repeated call start nothing. */
	start: (chain: ChainBody, key: string) => Promise<Record<string, string>>;
	/** Follows a run to its end; from its last known step when it was followed before. */
	follow: (runId: string) => void;
	/** Follows a run for as long as it is looked at: the returned function lets go. */
	watch: (runId: string) => () => void;
	cancel: (runId: string) => Promise<void>;
	/** Stops the chain that the run was started with, or the run where it was started by itself. */
	stop: (runId: string) => Promise<void>;
	/** Stops several: each chain among them once. */
	stopAll: (runIds: string[]) => Promise<void>;
	/** Asks a run that waits to look again; gives whether the server took that in. */
	resume: (runId: string) => Promise<boolean>;
	decide: (runId: string, step: number, decision: "approve" | "deny") => Promise<void>;
	/** Begins a run that goes on from a step of another; gives it to whoever follows it. */
	fork: (runId: string, atSeq: number) => Promise<string>;
};

const followers = new Map<string, () => void>();
const waiting = new Map<string, RunMessage[]>();
/** The runs that are followed to their end, whoever looks at them. */
const kept = new Set<string>();
/** Run → how many parts of the page look at it. */
const watchers = new Map<string, number>();
/** Run that nobody looks at any more → until it is let go. */
const leaving = new Map<string, ReturnType<typeof setTimeout>>();
/** Whoever goes from a run to its comparison, and back, finds it as it was. A browser has 255 connections for all runs. */
const LET_GO_MS = 10_000;
/** Run → its chain, of those that this page has started: the server may not have noted yet what it has accepted. */
const chainOf = new Map<string, string>();
/** What comes within this is drawn at once: thirty times a second reads as it is written. */
const TAKE_IN_MS = 33;
let frame: ReturnType<typeof setTimeout> | null = null;
/** How soon it is read again who has answered, while a run waits for approval; each time without news later, up to the longest. */
const LOOK_AGAIN_MS = { first: 1_000, longest: 15_000 };
/** Run → the newest approval step that was looked at, and when to look again. */
const looks = new Map<string, { newest: number; timer: ReturnType<typeof setTimeout> }>();

export const useRuns = create<RunsState>((set, get) => {
	const change = (runId: string, with_: (run: Followed) => Followed) =>
		set(({ runs }) => ({
			runs: { ...runs, [runId]: with_(runs[runId] ?? newlyFollowed(runId)) },
		}));

	const takeIn = () => {
		frame = null;
		set(({ runs }) => {
			const next = { ...runs };
			for (const [runId, messages] of waiting) {
				const run = next[runId];
				if (run) next[runId] = heard(run, messages);
			}
			waiting.clear();
			return { runs: next };
		});
		lookAtApprovals();
	};

	/** What was answered before this page came, or in another window, the stream does not tell while another call waits. */
	const lookAtApprovals = () => {
		for (const [runId, run] of Object.entries(get().runs)) {
			if (run.status !== "waiting_approval") continue;
			const newest = pendingApprovals(run).at(-1);
			if (newest !== undefined && looks.get(runId)?.newest !== newest) look(runId, newest, LOOK_AGAIN_MS.first);
		}
	};

	/** Reads which approval steps still wait, until none does. */
	const look = (runId: string, newest: number, pause: number) => {
		stopLooking(runId);
		const run = get().runs[runId];
		const asked = run ? pendingApprovals(run) : [];
		if (asked.length === 0) return;
		const later = Math.min(pause * 2, LOOK_AGAIN_MS.longest);
		looks.set(runId, { newest, timer: setTimeout(() => look(runId, newest, later), pause) });
		void readRun(runId)
			.then((seen) => {
				const known = new Set(seen.steps.map((step) => step.seq));
				const open = new Set((seen.pending_approvals ?? []).map((one) => one.step));
				const gone = asked.filter((seq) => known.has(seq) && !open.has(seq));
				if (gone.length > 0) change(runId, (now) => ({ ...now, ...answer(now, gone) }));
			})
			// Whoever is away now is asked again like the others.
			.catch(() => {});
	};

	/** `seq` of the last step, counting those that wait for the next frame. */
	const received = (runId: string): number => {
		const run = get().runs[runId];
		const queued = (waiting.get(runId) ?? []).filter((m) => m.type === "step").length;
		return (run ? lastSeq(run) : 0) + queued;
	};

	const listen = (runId: string) => {
		const known = get().runs[runId];
		if (followers.has(runId) || (known && hasEnded(known))) return;
		change(runId, (run) => ({ ...run, problem: null, refused: false }));
		const stop = followRun(runId, {
			after: () => received(runId),
			onMessage: (message) => {
				const queue = waiting.get(runId);
				if (queue) queue.push(message);
				else waiting.set(runId, [message]);
				if (message.type === "final") followers.delete(runId);
				// A timer, not an animation frame: a page in the background goes on taking in.
				if (frame === null) frame = setTimeout(takeIn, TAKE_IN_MS);
			},
			onConnection: (connected) => {
				change(runId, (run) => ({ ...run, connected }));
				if (connected) stopLooking(runId);
			},
			onRefused: (problem) => {
				followers.delete(runId);
				change(runId, (run) => ({ ...run, problem, refused: true }));
			},
		});
		followers.set(runId, stop);
	};

	/** Nobody looks at it any more, and nobody wants its end. */
	const letGo = (runId: string) => {
		leaving.delete(runId);
		if (kept.has(runId)) return;
		followers.get(runId)?.();
		followers.delete(runId);
		waiting.delete(runId);
		stopLooking(runId);
		set(({ runs: { [runId]: _, ...runs } }) => ({ runs }));
	};

	/** Stops the chain of a run, unless it is one of those that are stopped already. */
	const stopOnce = async (runId: string, stopped: Set<string>) => {
		try {
			const chain = chainOf.get(runId) ?? (await readRun(runId)).chain?.chain_id;
			if (!chain) return await get().cancel(runId);
			if (stopped.has(chain)) return;
			stopped.add(chain);
			await post(`/chains/${encodeURIComponent(chain)}/cancel`, { reason: "stopped on the canvas" });
			change(runId, (run) => ({ ...run, problem: null }));
		} catch (error) {
			change(runId, (run) => ({ ...run, problem: describe(error) }));
		}
	};

	return {
		runs: {},

		async start(chain, key) {
			const accepted = await post<ChainAccepted>("/chains", chain, key);
			for (const run of accepted.runs) {
				chainOf.set(run.run_id, accepted.chain_id);
				get().follow(run.run_id);
			}
			return Object.fromEntries(accepted.runs.map((run) => [run.name, run.run_id]));
		},

		follow(runId) {
			kept.add(runId);
			listen(runId);
		},

		watch(runId) {
			watchers.set(runId, (watchers.get(runId) ?? 0) + 1);
			clearTimeout(leaving.get(runId));
			leaving.delete(runId);
			listen(runId);
			return () => {
				const left = (watchers.get(runId) ?? 1) - 1;
				if (left > 0) {
					watchers.set(runId, left);
					return;
				}
				watchers.delete(runId);
				leaving.set(
					runId,
					setTimeout(() => letGo(runId), LET_GO_MS),
				);
			};
		},

		async cancel(runId) {
			try {
				await post(`/runs/${runId}/cancel`, { reason: "stopped on the canvas" });
				change(runId, (run) => ({ ...run, problem: null }));
			} catch (error) {
				change(runId, (run) => ({ ...run, problem: describe(error) }));
			}
		},

		stop: (runId) => stopOnce(runId, new Set()),

		async stopAll(runIds) {
			const stopped = new Set<string>();
			await Promise.all(runIds.map((runId) => stopOnce(runId, stopped)));
		},

		async resume(runId) {
			try {
				await post(`/runs/${runId}/resume`, {});
				change(runId, (run) => ({ ...run, problem: null }));
				listen(runId);
				return true;
			} catch (error) {
				change(runId, (run) => ({ ...run, problem: describe(error) }));
				return false;
			}
		},

		async decide(runId, step, decision) {
			try {
				await post(`/runs/${runId}/approvals/${step}`, { decision });
				change(runId, (run) => ({ ...run, ...answer(run, [step]), problem: null }));
			} catch (error) {
				const late = error instanceof ApiError && error.code === "approval_decided";
				change(runId, (run) => (late ? { ...run, ...answer(run, [step]) } : { ...run, problem: describe(error) }));
			}
		},

		async fork(runId, atSeq) {
			const fork = await post<RunAccepted>(`/runs/${runId}/fork`, { at_seq: atSeq });
			return fork.run_id;
		},
	};
});

/** Whether a run goes on, as far as this page knows. That something was refused that was asked of it does not end it. */
export function isGoing(run: Followed | undefined): run is Followed {
	return run !== undefined && !hasEnded(run) && !run.refused;
}

function newlyFollowed(runId: string): Followed {
	return { ...unknownRun(runId), connected: false, problem: null, refused: false };
}

/** With its end nothing is left to be asked of it. */
function heard(run: Followed, messages: RunMessage[]): Followed {
	const next = { ...run, ...apply(run, ...messages) };
	return hasEnded(next) ? { ...next, problem: null } : next;
}

function stopLooking(runId: string): void {
	clearTimeout(looks.get(runId)?.timer);
	looks.delete(runId);
}

/** A run that is followed for as long as anybody looks at it. */
export function useFollowed(runId: string): Followed | undefined {
	const watch = useRuns((s) => s.watch);
	useEffect(() => watch(runId), [watch, runId]);
	return useRuns((s) => s.runs[runId]);
}

async function post<T = unknown>(path: string, body: unknown, key?: string): Promise<T> {
	return call<T>(path, { method: "POST", body, key });
}

/** A run that is not followed, read once. */
export function readRun(runId: string): Promise<RunView> {
	return call<RunView>(`/runs/${encodeURIComponent(runId)}`);
}
