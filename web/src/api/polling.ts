"use client";

import { useCallback, useEffect, useRef, useState } from "react";
import { useSession } from "@/session/store";
import { call, Offline } from "./client";

export type Polled<T> = {
	/** The last answer; kept while the backend is away. */
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
	const failures = useRef(0);
	const session = useSession((s) => s.round);

	// biome-ignore lint/correctness/useExhaustiveDependencies: another path starts from nothing
	useEffect(() => {
		setData(null);
		setError(null);
	}, [path]);

	// biome-ignore lint/correctness/useExhaustiveDependencies: `round` and a new session ask for a new reading
	useEffect(() => {
		if (path === null) return;
		const abort = new AbortController();
		let timer: ReturnType<typeof setTimeout> | undefined;
		const read = async () => {
			try {
				const answer = await call<T>(path, { signal: abort.signal });
				failures.current = 0;
				setData(answer);
				setError(null);
			} catch (problem) {
				if (abort.signal.aborted) return;
				failures.current += 1;
				setError(problem);
			}
			if (abort.signal.aborted) return;
			const pause = failures.current > 0 ? Math.min(1_000 * 2 ** (failures.current - 1), 8_000) : everyMs;
			timer = setTimeout(read, document.hidden ? pause * 4 : pause);
		};
		void read();
		return () => {
			abort.abort();
			clearTimeout(timer);
		};
	}, [path, everyMs, round, session]);

	const refresh = useCallback(() => setRound((n) => n + 1), []);
	return { data, error, offline: error instanceof Offline, refresh };
}
