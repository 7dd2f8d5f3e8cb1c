// What is shown only where somebody has set it: the price of a run, and the column of a re-ranker.
// `node e2e/figures.mjs BASE_URL SHOTS_FOLDER`, with a price for the model of the tests and a re-ranker that refuses a query with `refuse`.
import assert from "node:assert/strict";
import { launch, walker } from "./browser.mjs";

const [base, shots] = process.argv.slice(2);
const browser = await launch();
const { page, complaints, shot, step, accessibleEverywhere, imported } = await walker(browser, base, shots);
const json = async (path) => (await fetch(base + path)).json();

/** What a run used once the server has noted its end: the stream is ahead. */
async function usageOf(id) {
	for (const until = Date.now() + 30_000; ; await page.waitForTimeout(200)) {
		const { status, usage } = await json(`/runs/${id}`);
		if (status === "succeeded") return usage;
		assert.ok(Date.now() < until, `the run is ${status}`);
	}
}

await step("what a run cost stands on its node, on its page and in its row", async () => {
	await page.goto(base);
	await page.locator(".react-flow__pane").waitFor();
	const at = (id, x, task) => ({ id, kind: "agent", x, y: 0, data: { agent: "react", task } });
	await imported({
		format: "riverrun.canvas",
		version: 1,
		name: "Priced",
		namespace: "default",
		nodes: [at("a", 0, "[[steps=1 id=web-cost-1]] Count."), at("b", 500, "[[steps=0 id=web-cost-2]] Go on: {{input}}")],
		edges: [{ from: "a", to: "b" }],
	});
	const last = page.locator('.react-flow__node[data-id="b"]');
	await last.getByRole("button", { name: "run", exact: true }).click();
	await last.getByText("succeeded", { exact: true }).waitFor();
	const costs = [];
	for (const id of ["a", "b"]) {
		const node = page.locator(`.react-flow__node[data-id="${id}"]`);
		const address = await node.getByRole("link", { name: "in full" }).getAttribute("href");
		const { total_tokens: tokens, cost_usd: cost } = await usageOf(new URL(address, base).searchParams.get("id"));
		assert.ok(cost > 0, "the run has no price");
		// In the line of the node's own, before that of its row.
		await node
			.getByText(`${tokens.toLocaleString("en")} tokens · $${cost.toFixed(4)}`)
			.first()
			.waitFor();
		costs.push(cost);
	}
	const [first, second] = costs;
	await last
		.getByText(/row of 2: \d+ tokens/)
		.filter({ hasText: `$${(first + second).toFixed(4)}` })
		.waitFor();
	await shot("priced");
	await last.getByRole("link", { name: "in full" }).click();
	await page
		.getByText(`tokens · $${second.toFixed(4)}`)
		.first()
		.waitFor();
});

await step("a search shows what each stage gave, the re-ranker too", async () => {
	await page.goto(`${base}/ui/collections/`);
	await page.getByLabel("collection", { exact: true }).fill("club");
	const files = ["A winch launch costs 12 euros.", "An aerotow costs 40 euros.", "The club was founded in 1951."];
	await page.locator("input[type=file]").setInputFiles(
		files.map((text, at) => ({
			name: `page-${at}.md`,
			mimeType: "text/markdown",
			buffer: Buffer.from(`# Page ${at}\n\n${text}\n`),
		})),
	);
	await page.getByRole("button", { name: "Upload", exact: true }).click();
	await page.getByText("3 of 3: 3 indexed").waitFor();
	await page.getByLabel("query").fill("What does a winch launch cost?");
	await page.getByRole("button", { name: "Search", exact: true }).click();
	await page.getByText(/· re-ranked \d+\.\d ms/).waitFor();
	const row = page.getByRole("row").filter({ hasText: "12 euros" });
	const scores = await row.getByRole("cell").allTextContents();
	assert.equal(scores.length, 6);
	for (const score of scores.slice(2)) assert.match(score, /^-?\d+\.\d{3}$/, `${scores}`);
	await accessibleEverywhere("a search that is re-ranked");
	await shot("re-ranked");
});

await step("a search that could not be re-ranked says so and why", async () => {
	await page.getByLabel("query").fill("refuse: what does a winch launch cost?");
	await page.getByRole("button", { name: "Search", exact: true }).click();
	await page.getByText("re-ranking was left out").waitFor();
	await page.getByText(/· not re-ranked/).waitFor();
	await page.getByRole("row").filter({ hasText: "12 euros" }).waitFor();
	await shot("not-re-ranked");
});

await step("nothing went wrong unseen", () => assert.deepEqual(complaints, []));
await browser.close();
