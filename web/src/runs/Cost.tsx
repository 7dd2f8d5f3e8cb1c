import type { UsageView } from "@/api/client";
import { shownCost, whyLess } from "./price";

/** What calls cost, behind a dot; nothing where nothing is known to cost anything. */
export function Cost({ usage }: { usage: UsageView }) {
	const cost = shownCost(usage);
	if (!cost) return null;
	return <span title={whyLess(usage)}>{` · ${cost}`}</span>;
}
