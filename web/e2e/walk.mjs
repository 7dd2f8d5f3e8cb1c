// Walks through the pages in a real browser, as a user would. `node e2e/walk.mjs BASE_URL CONTROL_URL SHOTS_FOLDER`
// CONTROL_URL takes /stop and /start, which end and begin the server behind BASE_URL.
import assert from "node:assert/strict";
import { existsSync, mkdirSync, readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";
import { chromium } from "playwright-core";

const [base, control, shots] = process.argv.slice(2);
const BROWSERS = ["/usr/bin/chromium", "/usr/bin/chromium-headless-shell", "/usr/bin/google-chrome"];
const ARGUMENTS = [
	"--no-sandbox",
	"--disable-gpu",
	"--disable-quic",
	"--no-first-run",
	"--disable-background-networking",
];
const axe = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
const PATIENCE_MS = 30_000;
mkdirSync(shots, { recursive: true });

const browser = await chromium.launch({ executablePath: BROWSERS.find((path) => existsSync(path)), args: ARGUMENTS });
const context = await browser.newContext({ viewport: { width: 1280, height: 800 }, acceptDownloads: true });
const page = await context.newPage();
page.setDefaultTimeout(PATIENCE_MS);
const complaints = [];
page.on(
	"console",
	(message) => message.type() === "error" && complaints.push(`${message.text()} ${message.location().url}`),
);
page.on("pageerror", (error) => complaints.push(String(error)));
const outside = [];
page.on("request", (request) => {
	const url = new URL(request.url());
	if (url.origin !== new URL(base).origin && !["data:", "blob:"].includes(url.protocol)) outside.push(request.url());
});

const agent = (name) => page.getByRole("article", { name: `agent ${name}` });
const palette = (name) =>
	page.getByRole("complementary", { name: "palette" }).getByRole("button", { name, exact: true });
const shot = (name) => page.screenshot({ path: join(shots, `${name}.png`) });

async function step(name, walk) {
	try {
		await walk();
		console.log(`ok ${name}`);
	} catch (error) {
		await shot(`failed-${name.replaceAll(" ", "-")}`);
		console.error(`not ok ${name}\n${error.stack}`);
		process.exitCode = 1;
	}
}

async function accessible(name) {
	// Run beside the page's own scripts, which its policy lets nothing join.
	await page.evaluate(axe);
	const { violations } = await page.evaluate(() => window.axe.run(document, { runOnly: ["wcag2a", "wcag2aa"] }));
	const found = violations.map(
		(one) =>
			`${one.id}: ${one.nodes
				.map((node) => node.target.join(" "))
				.slice(0, 3)
				.join(", ")}`,
	);
	assert.deepEqual(found, [], `${name} has violations`);
}

async function link(from, to) {
	const source = await from.locator(".react-flow__handle.source").boundingBox();
	const target = await to.locator(".react-flow__handle.target").boundingBox();
	await page.mouse.move(source.x + source.width / 2, source.y + source.height / 2);
	await page.mouse.down();
	await page.mouse.move(target.x + target.width / 2, target.y + target.height / 2, { steps: 8 });
	await page.mouse.up();
}

await step("an empty canvas becomes a graph", async () => {
	await page.goto(base);
	await palette("react").dragTo(page.locator(".react-flow__pane"), { targetPosition: { x: 420, y: 120 } });
	await palette("calculator").dragTo(page.locator(".react-flow__pane"), { targetPosition: { x: 60, y: 160 } });
	await agent("react").waitFor();
	await link(page.getByRole("article", { name: "tool calculator" }), agent("react"));
	await page.locator(".react-flow__edge").waitFor();
	await shot("graph");
});

await step("a run's steps and answer show on the node", async () => {
	await agent("react").getByLabel("task").fill("[[steps=2 id=web-run]] What is 6 times 7?");
	await agent("react").getByRole("button", { name: "run", exact: true }).click();
	await agent("react").getByText("succeeded").waitFor();
	assert.ok(
		(await agent("react")
			.getByText(/calculator\(/)
			.count()) >= 2,
		"the tool calls are shown",
	);
	await agent("react")
		.getByText(/tokens/)
		.waitFor();
	await shot("run");
});

await step("a reload in the middle of a run loses nothing", async () => {
	await agent("react").getByLabel("task").fill("[[steps=6 delay_ms=300 id=web-reload]] Count slowly.");
	await agent("react").getByRole("button", { name: "run", exact: true }).click();
	await agent("react").getByText("running").waitFor();
	await page.waitForTimeout(600);
	await page.reload();
	await agent("react").getByText("succeeded").waitFor();
	assert.ok(
		(await agent("react")
			.getByText(/calculator\(/)
			.count()) >= 6,
		"every call is there again",
	);
});

await step("a run is stopped", async () => {
	await agent("react").getByLabel("task").fill("[[steps=50 delay_ms=400 id=web-stop]] Count for ever.");
	await agent("react").getByRole("button", { name: "run", exact: true }).click();
	await agent("react").getByRole("button", { name: "stop", exact: true }).click();
	await agent("react").getByText("cancelled", { exact: true }).waitFor();
});

await step("a call that waits is approved, and its buttons go with the answer", async () => {
	await agent("react").getByText("react", { exact: true }).first().click();
	const approval = page.getByLabel("tool calls that wait for your approval");
	await approval.selectOption("always");
	await agent("react").getByLabel("task").fill("[[steps=2 id=web-approve]] Ask me before each call.");
	await agent("react").getByRole("button", { name: "run", exact: true }).click();
	for (let answered = 0; answered < 2; answered++) {
		const approve = agent("react").getByRole("button", { name: "Approve", exact: true });
		await approve.waitFor();
		const asked = await approve.elementHandle();
		await asked.click();
		await asked.waitForElementState("hidden");
	}
	await agent("react").getByText("succeeded", { exact: true }).waitFor();
	await approval.selectOption("external");
});

await step("an input is connected and cut without a mouse", async () => {
	const settings = page.getByRole("complementary", { name: "settings" });
	await palette("clock").click();
	await agent("react").getByText("react", { exact: true }).first().click();
	await settings.getByLabel("connect an input").selectOption({ label: "clock" });
	await settings.getByRole("button", { name: "disconnect clock" }).click();
	await settings.getByLabel("connect an input").waitFor();
	assert.equal(await page.locator(".react-flow__edge").count(), 1);
});

await step("what can't be connected says why", async () => {
	await palette("sticky note").click();
	await page.getByRole("article", { name: "note" }).waitFor();
	await link(agent("react"), agent("react"));
	await page.getByText(/not connected: a node can't be connected to itself/).waitFor();
});

await step("undo and redo", async () => {
	await page.getByRole("button", { name: "undo" }).click();
	await page.getByRole("article", { name: "note" }).waitFor({ state: "detached" });
	await page.getByRole("button", { name: "redo" }).click();
	await page.getByRole("article", { name: "note" }).waitFor();
});

await step("an exported canvas comes back by import", async () => {
	const [download] = await Promise.all([
		page.waitForEvent("download"),
		page.getByRole("button", { name: "export" }).click(),
	]);
	const path = join(shots, "canvas.json");
	await download.saveAs(path);
	await page.getByRole("button", { name: "new canvas" }).click();
	await agent("react").waitFor({ state: "detached" });
	await page.getByLabel("canvas file").setInputFiles(path);
	await agent("react").waitFor();
	assert.equal(await page.locator(".react-flow__edge").count(), 1);
	await page.getByLabel("canvas file").setInputFiles({
		name: "bad.json",
		mimeType: "application/json",
		buffer: Buffer.from('{"__proto__":{}}'),
	});
	await page.getByText(/not imported: the key __proto__/).waitFor();
});

await step("a canvas is kept on the server and comes back from it, by keyboard alone", async () => {
	const dialog = page.getByRole("dialog");
	await page.getByRole("button", { name: "save on the server" }).focus();
	await page.keyboard.press("Control+s");
	await dialog.getByLabel(/^id in the namespace/).fill("walked");
	await accessible("the dialog that saves");
	await page.keyboard.press("Enter");
	await page.getByText(/keeps it as walked, revision 1/).waitFor();
	await page.keyboard.press("Control+s");
	await page.getByText(/keeps it as walked, revision 2/).waitFor();
	await page.getByRole("button", { name: "new canvas" }).click();
	await agent("react").waitFor({ state: "detached" });
	await page.keyboard.press("Control+o");
	const row = dialog.getByRole("button", { name: /walked/ });
	await row.waitFor();
	await accessible("the dialog that opens");
	await row.focus();
	await page.keyboard.press("Enter");
	await agent("react").waitFor();
	await dialog.waitFor({ state: "detached" });
	assert.equal(await page.locator(".react-flow__edge").count(), 1);
});

await step("script in a task and in an answer is words", async () => {
	await agent("react").getByLabel("task").fill('<img src=x onerror="window.hacked=1"> [[steps=0 id=web-html]]');
	await agent("react").getByRole("button", { name: "run", exact: true }).click();
	await agent("react").getByText("succeeded").waitFor();
	assert.equal(await page.evaluate(() => window.hacked), undefined);
});

await step("the canvas is accessible, in light and in dark", async () => {
	await accessible("the canvas");
	await page.getByRole("button", { name: "Dark" }).click();
	await accessible("the dark canvas");
	await shot("dark");
	await page.getByRole("button", { name: "Light" }).click();
});

for (const [name, path, words] of [
	["runs", "ui/runs/", "web-run"],
	["collections", "ui/collections/", "Upload"],
	["fine-tuning", "ui/finetuning/", "New job"],
	["projects", "ui/projects/", "No projects."],
	["documents", "ui/documents/", "No document is named."],
	["system", "ui/system/", "Services"],
]) {
	await step(`the ${name} page shows and is accessible`, async () => {
		await page.goto(`${base}/${path}`);
		await page.getByText(words).first().waitFor();
		await accessible(name);
		await shot(name);
	});
}

await step("a dataset that is no dataset is refused by its lines", async () => {
	await page.goto(`${base}/ui/finetuning/`);
	const form = page.getByRole("form", { name: "new dataset" });
	await form.getByLabel("name").fill("broken");
	await form.locator("input[type=file]").setInputFiles({
		name: "broken.jsonl",
		mimeType: "application/x-ndjson",
		buffer: Buffer.from('{"prompt": "a", "completion": "b"}\n{"prompt": "a"}\nno json\n'),
	});
	await form.getByRole("button", { name: "Upload" }).click();
	const lines = form.getByRole("list", { name: "what is wrong, by line" });
	await lines.getByText("line 2").waitFor();
	await lines.getByText("line 3").waitFor();
	await shot("dataset-refused");
});

await step("a chain goes on while no page is open, and is joined again", async () => {
	await page.goto(base);
	await palette("react").waitFor();
	const node = (id, x, task) => ({ id, kind: "agent", x, y: 40, data: { agent: "react", task } });
	const canvas = {
		format: "riverrun.canvas",
		version: 1,
		name: "A row",
		namespace: "default",
		nodes: [
			node("first", 40, "[[steps=0 delay_ms=5000 id=web-chain]] Think slowly."),
			node("second", 480, "[[steps=1 id=web-chain-2]] Go on: {{input}}"),
		],
		edges: [{ from: "first", to: "second" }],
	};
	await page.getByLabel("canvas file").setInputFiles({
		name: "row.json",
		mimeType: "application/json",
		buffer: Buffer.from(JSON.stringify(canvas)),
	});
	const [first, second] = ["first", "second"].map((id) => page.locator(`.react-flow__node[data-id="${id}"]`));
	await second.getByRole("button", { name: "run", exact: true }).click();
	await first.getByText("running").waitFor();
	await second.getByText("queued").waitFor();
	await page.goto("about:blank");
	const ended = async () => {
		const { items } = await (await fetch(`${base}/runs`)).json();
		return items.some((run) => run.task.includes("web-chain-2") && run.status === "succeeded");
	};
	for (let tries = 0; tries < 300 && !(await ended()); tries++) {
		await new Promise((resolve) => setTimeout(resolve, 100));
	}
	await page.goto(base);
	await first.getByText("succeeded").waitFor();
	await second.getByText("succeeded").waitFor();
	await shot("chain");
});

await step("a backend that goes away is said so, and comes back by itself", async () => {
	await page.goto(base);
	await palette("react").waitFor();
	await fetch(`${control}/stop`, { method: "POST" });
	await page.getByText(/The backend is offline\. Start it/).waitFor();
	await page.getByText("there is nothing to choose from").waitFor();
	await shot("offline");
	await fetch(`${control}/start`, { method: "POST" });
	await palette("react").waitFor();
});

await step("nothing is asked of anyone else, and nothing went wrong unseen", async () => {
	assert.deepEqual(outside, []);
	// Browsers complain of each request that is not answered or refused; the pages say both.
	const unexpected = complaints.filter(
		(text) =>
			!/ERR_CONNECTION_REFUSED|WebSocket connection|ERR_EMPTY_RESPONSE|ERR_CONNECTION_RESET|422 .*\/finetune\//.test(
				text,
			),
	);
	assert.deepEqual(unexpected, []);
});

await browser.close();
