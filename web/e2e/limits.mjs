// What the pages are held to: how much they fetch, what the browser itself refuses, and how much of something large is in the page.
// `node e2e/limits.mjs BASE_URL SHOTS_FOLDER`
import assert from "node:assert/strict";
import { launch, walker } from "./browser.mjs";
import { large } from "./graph.mjs";

const [base, shots] = process.argv.slice(2);
const browser = await launch();
const { page, complaints, outside, shot, step, counted, imported } = await walker(browser, base, shots);

await step("the first load of a page is at most 300 KB of script, as it is sent", async () => {
	for (const path of [
		"",
		"ui/runs/",
		"ui/collections/",
		"ui/finetuning/",
		"ui/projects/",
		"ui/documents/",
		"ui/system/",
	]) {
		await page.goto(`${base}/${path}`);
		const scripts = await page.evaluate(() => {
			const named = [...document.querySelectorAll("script[src]")].map((one) => one.src);
			const fetched = performance.getEntriesByType("resource").filter(({ name }) => named.includes(name));
			return fetched.map(({ encodedBodySize, decodedBodySize }) => ({ encodedBodySize, decodedBodySize }));
		});
		const sum = (of) => scripts.reduce((total, one) => total + one[of], 0);
		const [sent, whole] = [sum("encodedBodySize"), sum("decodedBodySize")];
		assert.ok(scripts.length > 0 && sent <= 300_000, `/${path} fetches ${sent} bytes of script`);
		assert.ok(sent < whole / 2, `/${path} is sent as it is: ${sent} of ${whole} bytes`);
	}
});

await step("the browser itself refuses scripts in a page, other servers and their pictures", async () => {
	const other = await page.context().newPage();
	await other.goto(base);
	const refused = await other.evaluate(async () => {
		const directives = [];
		const seen = new Promise((resolve) => {
			document.addEventListener("securitypolicyviolation", ({ effectiveDirective }) => {
				directives.push(effectiveDirective);
				if (directives.length === 3) resolve();
			});
		});
		document.head.append(Object.assign(document.createElement("script"), { textContent: "window.hacked = 1" }));
		new Image().src = "https://elsewhere.example/seen.png";
		void fetch("https://elsewhere.example/").catch(() => {});
		await seen;
		return directives.sort();
	});
	assert.deepEqual(refused, ["connect-src", "img-src", "script-src-elem"]);
	assert.equal(await other.evaluate(() => window.hacked), undefined);
	await other.close();
});

await step("a canvas of 500 nodes draws those in view", async () => {
	await page.goto(base);
	await page.locator(".react-flow__pane").waitFor();
	const many = large(500);
	await imported(many);
	await page.locator(".react-flow__node").first().waitFor();
	await page.keyboard.press("Control+k");
	await page.getByLabel("search the canvas").fill("react");
	await page.keyboard.press("Enter");
	await page.waitForFunction(() => {
		const drawn = document.querySelectorAll(".react-flow__node").length;
		return drawn > 0 && drawn < 100;
	});
	await shot("large");
});

await step("a run of 5,000 steps has in the page what is looked at", async () => {
	const step = (seq) => ({
		seq,
		kind: "thought",
		agent: "react",
		text: `thought ${seq}`,
		at: new Date().toISOString(),
	});
	await page.routeWebSocket(/\/ws\/runs\/run_long/, (socket) => {
		for (let seq = 1; seq <= 5_000; seq++) socket.send(JSON.stringify({ type: "step", step: step(seq) }));
	});
	await page.route(/\/runs\/run_long/, (route) => route.fulfill({ json: { items: [], edges: [] } }));
	await page.goto(`${base}/ui/runs/?id=run_long`);
	const steps = page.getByRole("list", { name: "steps" });
	// Whoever looks at the end sees what comes.
	await steps.getByText("thought 5000").waitFor();
	assert.ok((await steps.getByRole("listitem").count()) < 100);
	await page.getByRole("button", { name: "events", exact: true }).click();
	const events = page.getByRole("list", { name: "events" }).getByRole("listitem");
	await events.first().waitFor();
	assert.ok((await events.count()) < 100);
});

await step("more runs than a page holds are read page by page", async () => {
	const body = JSON.stringify({ task: "[[steps=0 id=web-pages]] Say it.", agent: "react" });
	const request = { method: "POST", headers: { "content-type": "application/json" }, body };
	for (let started = 0; started < 55; started++) assert.equal((await fetch(`${base}/runs`, request)).status, 202);
	const known = async () => (await (await fetch(`${base}/runs?limit=200`)).json()).items.length;
	for (const until = Date.now() + 60_000; (await known()) < 55; await page.waitForTimeout(200))
		assert.ok(Date.now() < until, "the runs are not all listed");
	await page.goto(`${base}/ui/runs/`);
	const runs = page.getByRole("region", { name: "Runs", exact: true }).getByRole("listitem");
	await counted(runs, 50);
	await page.getByRole("button", { name: "Older" }).click();
	await counted(runs, 5);
	await page.getByRole("button", { name: "Newer" }).click();
	await counted(runs, 50);
});

await step("nothing is asked of anyone else, and nothing went wrong unseen", () => {
	assert.deepEqual(outside, []);
	assert.deepEqual(complaints, []);
});
await browser.close();
