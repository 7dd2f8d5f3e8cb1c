// A canvas with a real model of this machine. What it says is not foretold: steps come, a call is asked for and approved, its run
// ends, is stopped, and is joined again. `node e2e/local.mjs BASE_URL SHOTS_FOLDER`
import assert from "node:assert/strict";
import { join } from "node:path";
import { launch, walker } from "./browser.mjs";

const [base, shots] = process.argv.slice(2);
const THINKS_MS = 600_000;
/** The first one is what the template asks. A model of this size may answer one of them without a call. */
const SUMS = [
	"What is 17% of 230?",
	"Use the calculator for 23 * 17.",
	"Call the calculator with the expression 12 + 30.",
];
const browser = await launch();
const { page, complaints, shot, step, agent, palette, counted, link } = await walker(browser, base, shots);
const node = agent("react");
const end = node.getByText(/^(succeeded|failed)$/);
const approve = node.getByRole("button", { name: "Approve", exact: true });
const ended = () => end.waitFor({ timeout: THINKS_MS });
const last = async () => (await (await fetch(`${base}/runs?limit=1`)).json()).items[0];

/** Waits until the server has it of the newest run: the stream is ahead of the read model. */
async function recorded(is, otherwise) {
	for (const deadline = Date.now() + 30_000; ; await page.waitForTimeout(200)) {
		const run = await (await fetch(`${base}/runs/${(await last()).run_id}`)).json();
		if (is(run)) return;
		assert.ok(Date.now() < deadline, otherwise);
	}
}

/** Begins a run; the node shows it and no longer the one before. */
async function run() {
	await node.getByRole("button", { name: "run", exact: true }).click();
	await node.getByText("running", { exact: true }).waitFor();
}

/** Until the run asks whether a call may be made, or has ended without; tells which. */
async function asks() {
	await approve.or(end).first().waitFor({ timeout: THINKS_MS });
	return approve.isVisible();
}

await step("a template is run by a real model, a reload in the middle loses nothing", async () => {
	await page.goto(base);
	await page.getByRole("button", { name: /^Calculate/ }).click();
	await run();
	await page.reload();
	await ended();
	const { run_id: id, status, steps } = await last();
	assert.ok(steps > 0 && status !== "cancelled");
	await node.getByText(`${steps} step`).waitFor();
	const { usage } = await (await fetch(`${base}/runs/${id}`)).json();
	assert.ok(usage.total_tokens > 0);
	await node.getByText(`${usage.total_tokens.toLocaleString("en")} tokens`).waitFor();
	await shot("local-run");
});

await step("a run is stopped while its model is at work", async () => {
	await node.getByLabel("task").fill("Write a long story about a river. Use no tool.");
	await run();
	await node.getByRole("button", { name: "stop", exact: true }).click();
	await node.getByText("cancelled", { exact: true }).waitFor();
	await recorded(({ status }) => status === "cancelled", "the run is not cancelled");
});

await step(
	"a graph is built on an empty canvas, its model calls a tool, and the call is made when it is approved",
	async () => {
		await page.getByRole("button", { name: "new canvas" }).click();
		await node.waitFor({ state: "detached" });
		const pane = page.locator(".react-flow__pane");
		for (const [name, x, y] of [
			["calculator", 60, 100],
			["clock", 60, 200],
			["react", 420, 100],
		])
			await palette(name).dragTo(pane, { targetPosition: { x, y } });
		for (const tool of ["calculator", "clock"]) await link(page.getByRole("article", { name: `tool ${tool}` }), node);
		await counted(page.locator(".react-flow__edge"), 2);
		await node.getByText("react", { exact: true }).first().click();
		await page.getByLabel("tool calls that wait for your approval").selectOption("always");
		let waits = false;
		for (const sum of SUMS) {
			await node.getByLabel("task").fill(sum);
			await run();
			waits = await asks();
			if (waits) break;
		}
		assert.ok(waits, "the model called no tool for any of the tasks");
		await node.getByText("waiting approval", { exact: true }).waitFor();
		await shot("local-asks");
		for (; waits; waits = await asks()) {
			const asked = await approve.first().elementHandle();
			await asked.click();
			await asked.waitForElementState("hidden");
		}
		await recorded(({ steps }) => steps.some(({ kind }) => kind === "tool_result"), "no call was made");
		await shot("local-approved");
	},
);

await step("what was built is exported, comes back by import and runs again", async () => {
	const [download] = await Promise.all([
		page.waitForEvent("download"),
		page.getByRole("button", { name: "export" }).click(),
	]);
	const path = join(shots, "local.json");
	await download.saveAs(path);
	await page.getByRole("button", { name: "new canvas" }).click();
	await node.waitFor({ state: "detached" });
	await page.getByLabel("canvas file").setInputFiles(path);
	await page.getByText(/local.json is imported: 3 nodes/).waitFor();
	await counted(page.locator(".react-flow__edge"), 2);
	await node.getByText("react", { exact: true }).first().click();
	const approval = page.getByLabel("tool calls that wait for your approval");
	assert.equal(await approval.inputValue(), "always");
	await approval.selectOption("never");
	await run();
	await ended();
	await shot("local-imported");
});

await step("nothing went wrong unseen", () => assert.deepEqual(complaints, []));
await browser.close();
