"use client";

import { useEffect, useState } from "react";
import { usePolled } from "@/api/polling";
import type { components } from "@/api/schema";
import { count } from "@/ui/words";
import { Cost } from "./Cost";

const GOING_MS = 3_000;
const ENDED_MS = 600_000;

/** What the whole row took that a run was started with; nothing for a run that stands alone. */
export function ChainTotal({ link }: { link: components["schemas"]["ChainLinkView"] | null | undefined }) {
	const path = link && link.runs > 1 ? `/chains/${encodeURIComponent(link.chain_id)}` : null;
	const [ended, setEnded] = useState(false);
	const { data } = usePolled<components["schemas"]["ChainView"]>(path, ended ? ENDED_MS : GOING_MS);
	useEffect(() => setEnded(Boolean(data?.finished_at)), [data]);
	if (!data) return null;
	const { usage, runs_total: runs } = data;
	return (
		<p className="text-soft text-xs tabular-nums">
			row of {runs}: {count(usage.total_tokens, "token")}
			<Cost usage={usage} />
		</p>
	);
}
