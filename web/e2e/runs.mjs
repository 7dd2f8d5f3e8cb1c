// Runs that wait, on their node and on their page: asked to look again, answered, gone on from, compared.
// `node e2e/runs.mjs BASE_URL CONTROL_URL SHOTS_FOLDER`, with a tool `slow` that changes something outside and that nobody answers.
// CONTROL_URL takes /kill and /start.
import assert from "node:assert/strict";
import { launch, walker } from "./browser.mjs";

const [base, control, shots] = process.argv.slice(2);
const STARTS_MS = 90_000;
const browser = await launch();
const { page, complaints, outside, shot, agent, step, counted, accessibleEverywhere, imported } = await walker(
	browser,
	base,
	shots,
);
const json = async (path) => (await fetch(base + path)).json();
const node = agent("react");
const button = (within, name) => within.getByRole("button", { name, exact: true });
const answer = page.getByRole("region", { name: "Answer" });
const stepOf = ({ steps }, kind) => steps.find((one) => one.kind === kind).seq;

/** Presses what asks a run to look again; the server takes it in. */
async function resume(pressed) {
	const asked = page.waitForResponse((one) => /\/runs\/[^/]+\/resume$/.test(one.url()));
	await pressed.click();
	assert.equal((await asked).status(), 202);
	await page.getByText(/the run was asked to look again/i).waitFor();
}

await step(
	"a call that a crash leaves without an outcome is asked about, and waits on its node however often it looks",
	async () => {
		await page.goto(base);
		await page.locator(".react-flow__pane").waitFor();
		const task = "[[steps=1 tool=slow args={} id=web-unknown]] Do it once.";
		await imported({
			format: "riverrun.canvas",
			version: 1,
			name: "Interrupted",
			namespace: "default",
			nodes: [
				{ id: "a", kind: "agent", x: 0, y: 0, data: { agent: "react", task, approval: "never" } },
				{ id: "t", kind: "tool", x: -300, y: 0, data: { tool: "slow" } },
			],
			edges: [{ from: "t", to: "a" }],
		});
		await button(node, "run").click();
		await node.getByText(/^slow\(/).waitFor();
		await fetch(`${control}/kill`, { method: "POST" });
		await node.getByText("connection lost; joining again…").waitFor();
		await fetch(`${control}/start`, { method: "POST" });
		await button(node, "Approve").waitFor({ timeout: STARTS_MS });
		await node
			.getByText(/its outcome is not known/)
			.first()
			.waitFor();
		await resume(button(node, "resume"));
		await node.getByText("waiting approval", { exact: true }).waitFor();
		await button(node, "Deny").waitFor();
		await accessibleEverywhere("a call without an outcome");
		await shot("outcome-unknown");
	},
);

await step("on its page it is asked to look again, too, and goes on without the call that is denied", async () => {
	await node.getByRole("link", { name: "in full" }).click();
	await resume(button(page, "Resume"));
	await accessibleEverywhere("a run that waits");
	await button(page, "Deny").click();
	await answer.getByText("done after 0 steps").waitFor();
	await counted(button(page, "Resume"), 0);
	const run = await json(`/runs/${new URL(page.url()).searchParams.get("id")}`);
	assert.equal(run.status, "succeeded");
	assert.equal(run.steps.filter((one) => one.kind === "tool_call").length, 1);
	assert.match(run.steps.find((one) => one.kind === "tool_result").tool.error, /was not made again/);
	await shot("resumed");
});

await step("a step from which no run can go on says so, on the node and on the page", async () => {
	const run = await json(`/runs/${new URL(page.url()).searchParams.get("id")}`);
	const fork = `fork after step ${stepOf(run, "tool_call")}`;
	await button(page, fork).click();
	await page
		.getByRole("alert")
		.filter({ hasText: /at_seq/ })
		.waitFor();
	await page.goBack();
	await button(node, fork).click();
	await node
		.getByRole("alert")
		.filter({ hasText: /at_seq/ })
		.waitFor();
});

/** The run of the page is compared with another one, by a link of that region. */
async function compared(region, other) {
	await page
		.getByRole("region", { name: region, exact: true })
		.getByRole("link", { name: `compare with ${other}` })
		.click();
	await page.getByText(/They part at step|They say the same/).waitFor();
	assert.equal(new URL(page.url()).searchParams.get("with"), other);
	await page.getByRole("list", { name: "steps of both" }).getByRole("listitem").first().waitFor();
}

await step(
	"a call is approved on the page of its run, and the run is compared with one that went on from its middle",
	async () => {
		const body = { task: "[[steps=1 id=web-page]] Ask me.", agent: "react", approval: "always" };
		const headers = { "content-type": "application/json" };
		const started = await fetch(`${base}/runs`, { method: "POST", headers, body: JSON.stringify(body) });
		const { run_id: id } = await started.json();
		await page.goto(`${base}/ui/runs/?id=${id}`);
		await button(page, "Approve").click();
		await answer.getByText("done after 1 steps").waitFor();
		await button(page, `fork after step ${stepOf(await json(`/runs/${id}`), "tool_result")}`).click();
		await page.waitForURL((url) => url.searchParams.get("id") !== id);
		const fork = new URL(page.url()).searchParams.get("id");
		await answer.getByText("done after 1 steps").waitFor();
		await compared("Branches", id);
		await accessibleEverywhere("two runs");
		await page.goto(`${base}/ui/runs/?id=${id}`);
		await compared("Runs", fork);
		await shot("two-runs");
	},
);

await step("nothing is asked of anyone else, and nothing went wrong unseen", () => {
	assert.deepEqual(outside, []);
	const unexpected = complaints.filter(
		(text) =>
			!/ERR_CONNECTION_REFUSED|WebSocket connection|ERR_EMPTY_RESPONSE|ERR_CONNECTION_RESET|422 .*\/fork/.test(text),
	);
	assert.deepEqual(unexpected, []);
});
await browser.close();
