"use client";

import { useCallback, useEffect, useState } from "react";
import { useSession } from "@/session/store";
import { ApiError, call, Offline } from "./client";
import { keepReading } from "./reading";

export type Polled<T> = {
	/** The last answer; kept while the backend is away, but not where it is refused. */
	data: T | null;
	error: unknown;
	/** Nobody answered the last time. */
	offline: boolean;
	refresh: () => void;
};

/** Reads a path now and again, slower while nobody answers or nobody looks; recovers by itself. */
export function usePolled<T>(path: string | null, everyMs: number): Polled<T> {
	const [data, setData] = useState<T | null>(null);
	const [error, setError] = useState<unknown>(null);
	const [round, setRound] = useState(0);
	const session = useSession((s) => s.round);

	// biome-ignore lint/correctness/useExhaustiveDependencies: another path starts from nothing
	useEffect(() => {
		setData(null);
		setError(null);
	}, [path]);

	// biome-ignore lint/correctness/useExhaustiveDependencies: `round` and a new session ask for a new reading
	useEffect(() => {
		if (path === null) return;
		return keepReading(async (signal) => {
			try {
				const answer = await call<T>(path, { signal });
				setData(answer);
				setError(null);
				return true;
			} catch (problem) {
				if (signal.aborted) return false;
				setError(problem);
				// Whoever signed in may not see what the one before was shown.
				if (problem instanceof ApiError && problem.status === 403) setData(null);
				return false;
			}
		}, everyMs);
	}, [path, everyMs, round, session]);

	const refresh = useCallback(() => setRound((n) => n + 1), []);
	return { data, error, offline: error instanceof Offline, refresh };
}
