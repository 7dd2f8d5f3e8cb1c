import { expect, test } from "vitest";
import { shownCost, whyLess } from "./price";

const usage = (cost_usd: number | null, unpriced_tokens?: number) => ({
	prompt_tokens: 1,
	completion_tokens: 1,
	total_tokens: 2,
	cost_usd,
	...(unpriced_tokens && { unpriced_tokens }),
});

test("given calls with and without a price, their cost is marked where it is without some, and says so", () => {
	const costs = [usage(0.25), usage(0), usage(null), usage(0.25, 7), usage(null, 1)];
	expect(costs.map(shownCost)).toEqual(["$0.2500", "$0.0000", null, "≥ $0.2500", "≥ $0"]);
	expect(costs.map(whyLess).map((why) => why?.slice(0, 17))).toEqual([
		undefined,
		undefined,
		undefined,
		"without 7 tokens ",
		"without 1 token o",
	]);
});
