// A canvas with a real model of this machine. What it says is not foretold: steps come, its run ends, is stopped, and is joined
// again. `node e2e/local.mjs BASE_URL SHOTS_FOLDER`
import assert from "node:assert/strict";
import { launch, walker } from "./browser.mjs";

const [base, shots] = process.argv.slice(2);
const THINKS_MS = 600_000;
const browser = await launch();
const { page, complaints, shot, step, agent } = await walker(browser, base, shots);
const node = agent("react");
const ended = () => node.getByText(/^(succeeded|failed)$/).waitFor({ timeout: THINKS_MS });
const run = () => node.getByRole("button", { name: "run", exact: true }).click();
const last = async () => (await (await fetch(`${base}/runs?limit=1`)).json()).items[0];

await step("a template is run by a real model, a reload in the middle loses nothing", async () => {
	await page.goto(base);
	await page.getByRole("button", { name: /^Calculate/ }).click();
	await run();
	await node.getByText("running", { exact: true }).waitFor();
	await page.reload();
	await ended();
	const { run_id: id, status, steps } = await last();
	assert.ok(steps > 0 && status !== "cancelled");
	await node.getByText(`${steps} step`).waitFor();
	const { usage } = await (await fetch(`${base}/runs/${id}`)).json();
	assert.ok(usage.total_tokens > 0);
	await node.getByText(`${usage.total_tokens} tokens`).waitFor();
	await shot("local-run");
});

await step("what it writes is seen while it writes, and it is stopped", async () => {
	await node.getByLabel("task").fill("Write a long story about a river. Use no tool.");
	await run();
	await node.getByText("running", { exact: true }).waitFor();
	await node.getByRole("button", { name: "stop", exact: true }).click();
	await node.getByText("cancelled", { exact: true }).waitFor();
	// The stream is ahead of the read model.
	for (const deadline = Date.now() + 30_000; (await last()).status !== "cancelled"; ) {
		assert.ok(Date.now() < deadline, "the run is not cancelled");
	}
});

await step("nothing went wrong unseen", () => assert.deepEqual(complaints, []));
await browser.close();
