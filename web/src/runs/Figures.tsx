"use client";

import { useEffect, useState } from "react";
import { count, lasted } from "@/ui/words";
import { Cost } from "./Cost";
import { hasEnded, type LiveRun, usageOf } from "./fold";

/** Tokens, cost and time of a run in one line; the time runs while the run does. */
export function Figures({ run }: { run: LiveRun }) {
	const usage = usageOf(run);
	const began = run.steps[0]?.at ?? run.result?.created_at;
	const now = useNow(!hasEnded(run) && began !== undefined);
	const end = run.result?.finished_at ? Date.parse(run.result.finished_at) : now;
	const start = run.result ? Date.parse(run.result.created_at) : began ? Date.parse(began) : end;
	return (
		<p className="text-soft text-xs tabular-nums">
			{count(usage.total_tokens, "token")}
			<Cost usage={usage} />
			{began && ` · ${lasted(Math.max(0, end - start))}`}
			{` · ${count(run.steps.length, "step")}`}
		</p>
	);
}

function useNow(running: boolean): number {
	const [now, setNow] = useState(() => Date.now());
	useEffect(() => {
		if (!running) return;
		const timer = setInterval(() => setNow(Date.now()), 200);
		return () => clearInterval(timer);
	}, [running]);
	return now;
}
