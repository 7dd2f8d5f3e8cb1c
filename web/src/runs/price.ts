import type { UsageView } from "@/api/client";
import { count } from "@/ui/words";

/** What calls cost, marked where it is without those that have no known price; null where nothing is known to cost anything. */
export function shownCost({ cost_usd, unpriced_tokens }: UsageView): string | null {
	const isLess = (unpriced_tokens ?? 0) > 0;
	if (cost_usd == null) return isLess ? "≥ $0" : null;
	return `${isLess ? "≥ " : ""}$${cost_usd.toFixed(4)}`;
}

/** What the mark means and what to do about it; undefined without one. */
export function whyLess({ unpriced_tokens }: UsageView): string | undefined {
	if (!unpriced_tokens) return undefined;
	return `without ${count(unpriced_tokens, "token")} of models that have no known price; a file that RIVERRUN_MODEL_PRICES names gives them one`;
}
