// Walks through the pages in a real browser, as a user would. `node e2e/walk.mjs BASE_URL CONTROL_URL SHOTS_FOLDER`
// CONTROL_URL takes /stop, /kill and /start, which end and begin the server behind BASE_URL.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { launch, walker } from "./browser.mjs";
import { large } from "./graph.mjs";

const [base, control, shots] = process.argv.slice(2);
const browser = await launch();
const {
	page,
	complaints,
	outside,
	shot,
	agent,
	palette,
	step,
	counted,
	accessible,
	accessibleEverywhere,
	link,
	imported,
} = await walker(browser, base, shots);

await step("an empty canvas becomes a graph", async () => {
	await page.goto(base);
	await palette("react").dragTo(page.locator(".react-flow__pane"), { targetPosition: { x: 420, y: 420 } });
	await palette("calculator").dragTo(page.locator(".react-flow__pane"), { targetPosition: { x: 60, y: 460 } });
	await agent("react").waitFor();
	await link(page.getByRole("article", { name: "tool calculator" }), agent("react"));
	await page.locator(".react-flow__edge").waitFor();
	await shot("graph");
});

await step("a run's steps and answer show on the node", async () => {
	await agent("react").getByLabel("task").fill("[[steps=2 id=web-run]] What is 6 times 7?");
	const asked = page.waitForRequest((one) => one.method() === "POST" && new URL(one.url()).pathname === "/chains");
	await agent("react").getByRole("button", { name: "run", exact: true }).click();
	// With exactly what is connected.
	const { runs } = (await asked).postDataJSON();
	assert.deepEqual(
		runs.map(({ run }) => [run.tools, run.collections]),
		[[["calculator"], []]],
	);
	await agent("react").getByText("succeeded").waitFor();
	await counted(agent("react").getByText(/calculator\(/), (calls) => calls >= 2);
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
	await counted(agent("react").getByText(/calculator\(/), (calls) => calls >= 6);
});

await step("two tabs keep a canvas each", async () => {
	const other = await page.context().newPage();
	await other.goto(base);
	await other.getByRole("article", { name: "agent react" }).waitFor();
	await other.getByRole("button", { name: "new canvas" }).click();
	await other.getByText(/Drag an agent from the left/).waitFor();
	await page.reload();
	await agent("react").waitFor();
	await other.reload();
	await other.getByText(/Drag an agent from the left/).waitFor();
	await other.getByRole("button", { name: "open from the server" }).click();
	await other
		.getByRole("list", { name: "canvases of other tabs" })
		.getByRole("button", { name: /2 nodes/ })
		.click();
	await other.getByRole("article", { name: "agent react" }).waitFor();
	await other.close();
});

await step("a run is stopped", async () => {
	await agent("react").getByLabel("task").fill("[[steps=50 delay_ms=400 id=web-stop]] Count for ever.");
	await agent("react").getByRole("button", { name: "run", exact: true }).click();
	await agent("react").getByRole("button", { name: "stop", exact: true }).click();
	await agent("react").getByText("cancelled", { exact: true }).waitFor();
});

await step("a run goes on from a step of its own, and two are compared", async () => {
	await agent("react").getByLabel("task").fill("[[steps=2 id=web-fork]] Count.");
	await agent("react").getByRole("button", { name: "run", exact: true }).click();
	await agent("react").getByText("succeeded").waitFor();
	await agent("react").getByRole("button", { name: "fork after step 3" }).click();
	const compare = agent("react").getByRole("link", { name: "compare with the one before" });
	await compare.waitFor();
	await agent("react").getByText("succeeded").waitFor();
	await compare.click();
	await page.getByText(/They part at step|They say the same/).waitFor();
	await accessibleEverywhere("the comparison");
	await shot("compared");
	await page.goBack();
	await agent("react").waitFor();
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
	await counted(page.locator(".react-flow__edge"), 1);
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

await step("a move by arrow keys is undone in one step", async () => {
	const note = page.locator(".react-flow__node").filter({ has: page.getByRole("article", { name: "note" }) });
	const place = () => note.evaluate((node) => node.style.transform);
	const before = await place();
	await note.focus();
	await page.keyboard.press("Enter");
	for (let pressed = 0; pressed < 3; pressed++) await page.keyboard.press("ArrowRight");
	await page.waitForFunction(([found, was]) => found.style.transform !== was, [await note.elementHandle(), before]);
	await page.getByRole("button", { name: "undo" }).click();
	await page.waitForFunction(([found, was]) => found.style.transform === was, [await note.elementHandle(), before]);
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
	await page.getByText(/canvas.json is imported/).waitFor();
	await counted(page.locator(".react-flow__edge"), 1);
	const dropped = await page.evaluateHandle(
		(text) => {
			const data = new DataTransfer();
			data.items.add(new File([text], "dropped.json", { type: "application/json" }));
			return data;
		},
		readFileSync(path, "utf8"),
	);
	await page.locator(".react-flow__pane").dispatchEvent("drop", { dataTransfer: dropped });
	await page.getByText(/dropped.json is imported/).waitFor();
	await counted(page.locator(".react-flow__edge"), 1);
	await imported('{"__proto__":{}}');
	await page.getByText(/not imported: the key __proto__/).waitFor();
});

await step("a canvas that is no canvas is refused with its place, and what is there stays", async () => {
	const node = (id, more = {}) => ({ id, kind: "agent", x: 0, y: 0, data: { agent: null, task: "" }, ...more });
	const canvas = (nodes, edges = []) => ({ ...large(2), nodes, edges });
	const circle = [
		{ from: "a", to: "b" },
		{ from: "b", to: "a" },
	];
	for (const [content, reason] of [
		[canvas([node("a"), node("b")], circle), /not imported: .*circle/],
		[canvas(Array.from({ length: 100_000 }, (_, n) => node(`n${n}`))), /not imported: .*(2,?000|MiB)/],
		[canvas([node("a", { script: "alert(1)" })]), /not imported: .*script/],
		["no json", /not imported: /],
	]) {
		await imported(content);
		await page.getByText(reason).waitFor();
		await agent("react").waitFor();
	}
});

await step("script in every label of a canvas is words", async () => {
	const script = "<img src=x onerror='window.hacked=1'><script>window.hacked=1</script>";
	const at = { x: 0, y: 300 };
	await imported({
		...large(2),
		name: script.slice(0, 100),
		nodes: [
			{ id: "a", kind: "agent", x: 0, y: 0, data: { agent: script.slice(0, 40), task: script } },
			{ id: "t", kind: "tool", ...at, data: { tool: "<b>tool</b>" } },
			{ id: "n", kind: "note", x: 300, y: 300, data: { text: script } },
			{ id: "g", kind: "group", x: 600, y: 300, width: 200, height: 200, data: { title: script.slice(0, 60) } },
		],
		edges: [],
	});
	// It is taken in, and all of it is shown as it stands in the file.
	await page.getByText(/is imported: 4 nodes/).waitFor();
	await page.getByRole("article", { name: "tool <b>tool</b>" }).waitFor();
	await agent(script.slice(0, 40)).waitFor();
	assert.equal(await agent(script.slice(0, 40)).getByLabel("task").inputValue(), script);
	assert.equal(await page.getByLabel("note text").inputValue(), script);
	assert.equal(await page.getByLabel("group title").inputValue(), script.slice(0, 60));
	assert.equal(await page.evaluate(() => window.hacked), undefined);
	await counted(page.locator("main img, main b"), 0);
	while ((await agent("react").count()) === 0) await page.getByRole("button", { name: "undo" }).click();
});

await step("nodes are copied, aligned, grouped and found by keyboard", async () => {
	const nodes = page.locator(".react-flow__node");
	const pressed = async (...keys) => {
		await page.locator(".react-flow__pane").click({ position: { x: 8, y: 8 } });
		for (const key of keys) await page.keyboard.press(key);
	};
	const before = await nodes.count();
	await pressed("Control+a", "Control+c", "Control+v");
	await counted(nodes, 2 * before);
	await page.getByRole("button", { name: "align" }).click();
	await page.getByRole("menuitem", { name: "left edges" }).click();
	await page.waitForFunction(() => {
		const chosen = [...document.querySelectorAll(".react-flow__node.selected")];
		const lefts = chosen.map((node) => Math.round(new DOMMatrix(getComputedStyle(node).transform).e));
		return lefts.length > 1 && new Set(lefts).size === 1;
	});
	await page.keyboard.press("Control+g");
	await page.getByLabel("group title").waitFor();
	await shot("group");
	await page.keyboard.press("Control+Shift+g");
	await page.getByLabel("group title").waitFor({ state: "detached" });
	await page.keyboard.press("Control+k");
	await page.getByLabel("search the canvas").fill("calculator");
	await page.keyboard.press("Enter");
	await page.getByRole("complementary", { name: "settings" }).getByText("Effect: none").waitFor();
	for (let tries = 0; (await nodes.count()) > before && tries < 10; tries++) await pressed("Control+z");
	await counted(nodes, before);
	await page.getByRole("img", { name: "overview" }).waitFor();
});

await step("no key acts through a dialog or a menu", async () => {
	const nodes = page.locator(".react-flow__node");
	await page.locator(".react-flow__pane").click({ position: { x: 8, y: 8 } });
	await page.keyboard.press("Control+a");
	const before = await nodes.count();
	const state = () =>
		page.evaluate(() => [
			document.querySelectorAll(".react-flow__node").length,
			document.querySelectorAll(".react-flow__node.selected").length,
			document.querySelectorAll('[role="dialog"]').length,
			document.querySelector(".react-flow output")?.textContent,
		]);
	const keys = ["s", "o", "k", "x", "d", "z", "g", "Shift+g", "Shift+Enter", "."].map((key) => `Control+${key}`);
	for (const key of [...keys, "Meta+s", "F2", "Delete", "Backspace"]) {
		await page.getByRole("button", { name: "keys", exact: true }).click();
		await page.getByRole("dialog", { name: "Keys" }).waitFor();
		const was = await state();
		await page.keyboard.press(key);
		assert.deepEqual(await state(), was, key);
		await page.keyboard.press("Escape");
		await counted(page.getByRole("dialog"), 0);
	}
	for (const key of ["Delete", "Backspace", "Control+x", "Control+s"]) {
		await page.getByRole("button", { name: "align" }).click();
		await page.getByRole("menu").waitFor();
		await page.keyboard.press(key);
		await counted(nodes, before);
		await counted(page.getByRole("dialog"), 0);
		await page.keyboard.press("Escape");
		await counted(page.getByRole("menu"), 0);
	}
	await page.locator(".react-flow__pane").click({ position: { x: 8, y: 8 } });
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
	await accessibleEverywhere("the dialog that opens");
	await row.focus();
	await page.keyboard.press("Enter");
	await agent("react").waitFor();
	await dialog.waitFor({ state: "detached" });
	await counted(page.locator(".react-flow__edge"), 1);
});

await step("script in a task and in an answer is words", async () => {
	await agent("react").getByLabel("task").fill('<img src=x onerror="window.hacked=1"> [[steps=0 id=web-html]]');
	await agent("react").getByRole("button", { name: "run", exact: true }).click();
	await agent("react").getByText("succeeded").waitFor();
	assert.equal(await page.evaluate(() => window.hacked), undefined);
});

await step("the canvas is accessible, in light and in dark", async () => {
	await accessibleEverywhere("the canvas");
	await page.getByRole("button", { name: "Dark" }).click();
	assert.equal(await page.evaluate(() => document.documentElement.dataset.theme), "dark");
	await shot("dark");
	// Also before the page's own scripts are there, so that nothing flashes.
	const other = await page.context().newPage();
	await other.route(/_next\/static\/chunks/, (route) => route.abort());
	await other.goto(base);
	assert.equal(await other.evaluate(() => document.documentElement.dataset.theme), "dark");
	await other.close();
	await page.getByRole("button", { name: "Light" }).click();
});

await step("a template runs as it is", async () => {
	await page.getByRole("button", { name: "new canvas" }).click();
	await page.getByRole("button", { name: /^Calculate/ }).click();
	await agent("react").getByRole("button", { name: "run", exact: true }).click();
	await agent("react").getByText("succeeded").waitFor();
	await counted(page.locator(".react-flow__edge"), 2);
});

await step("a canvas that another one took the place of comes back by undo with its runs", async () => {
	await page.getByRole("button", { name: "new canvas" }).click();
	await agent("react").waitFor({ state: "detached" });
	await page.getByRole("button", { name: "undo" }).click();
	await agent("react").getByText("succeeded").waitFor();
});

await step("files become a collection that is searched, asked and cited", async () => {
	await page.goto(`${base}/ui/collections/`);
	await page.getByLabel("collection", { exact: true }).fill("walked");
	await page.locator("input[type=file]").setInputFiles({
		name: "winch.md",
		mimeType: "text/markdown",
		buffer: Buffer.from("# Winch\n\nA winch launch costs 12 euros on every flying day.\n"),
	});
	await page.getByRole("button", { name: "Upload" }).click();
	await page.getByText(/1 of 1: 1 indexed/).waitFor();
	await page.getByLabel("query").fill("What does a winch launch cost?");
	await page.getByRole("button", { name: "Search", exact: true }).click();
	for (const head of ["dense", "sparse", "fused", "re-ranked"])
		await page.getByRole("columnheader", { name: head }).waitFor();
	await page.getByRole("cell", { name: /12 euros/ }).waitFor();
	await page.getByRole("button", { name: "Ask" }).click();
	await page.getByRole("button", { name: /^source 1/ }).click();
	await page.getByRole("dialog").locator("mark").waitFor();
	await accessibleEverywhere("a cited source");
	await shot("cited");
	await page.keyboard.press("Escape");
});

await step("a document says where it is from, and its versions are read", async () => {
	await page.getByRole("button", { name: "upload/winch.md", exact: true }).click();
	const dialog = page.getByRole("dialog");
	const origin = dialog.getByLabel("where it is from");
	await origin.getByText("text/markdown, UTF-8").waitFor();
	await origin.getByText("fetched").waitFor();
	await dialog.getByText(/12 euros/).waitFor();
	await accessibleEverywhere("a document");
	await shot("document");
	await page.keyboard.press("Escape");
});

for (const [name, path, words] of [
	["runs", "ui/runs/", "web-run"],
	["collections", "ui/collections/", "Upload"],
	["fine-tuning", "ui/finetuning/", "New training"],
	["projects", "ui/projects/", "No projects."],
	["documents", "ui/documents/", "No document is named."],
	["system", "ui/system/", "Services"],
]) {
	await step(`the ${name} page shows and is accessible`, async () => {
		await page.goto(`${base}/${path}`);
		await page.getByText(words).first().waitFor();
		await accessibleEverywhere(name);
		await shot(name);
	});
}

await step("a run in full is accessible", async () => {
	const { items } = await (await fetch(`${base}/runs`)).json();
	await page.goto(`${base}/ui/runs/?id=${items.find((run) => run.task.includes("web-run")).run_id}`);
	await page
		.getByRole("list", { name: "steps" })
		.getByText(/calculator\(/)
		.first()
		.waitFor();
	await accessibleEverywhere("a run in full");
	await shot("run-in-full");
	await page.getByRole("button", { name: "events", exact: true }).click();
	const events = page.getByRole("list", { name: "events" });
	await page.getByLabel("kind of event").selectOption("tool_call");
	await counted(events.getByRole("listitem"), 2);
	await events.getByRole("button").first().click();
	await events.getByText(/"kind": "tool_call"/).waitFor();
	await accessibleEverywhere("events of a run");
	await shot("events");
	const [download] = await Promise.all([
		page.waitForEvent("download"),
		page.getByRole("button", { name: "Download as JSON lines" }).click(),
	]);
	const path = join(shots, "events.jsonl");
	await download.saveAs(path);
	const lines = readFileSync(path, "utf8").trimEnd().split("\n");
	assert.deepEqual(
		lines.map((line) => JSON.parse(line).kind),
		["tool_call", "tool_call"],
	);
});

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
	await imported(canvas);
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
	await second.getByText(/row of 2: \d+ tokens/).waitFor();
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

await step("a run goes on through kill -9 of the server, and its node shows it to the end", async () => {
	await imported({
		...large(2),
		nodes: [
			{
				id: "killed",
				kind: "agent",
				x: 0,
				y: 0,
				data: { agent: "react", task: "[[steps=8 delay_ms=400 id=web-kill]] Count." },
			},
			{ id: "calculator", kind: "tool", x: -300, y: 0, data: { tool: "calculator" } },
		],
		edges: [{ from: "calculator", to: "killed" }],
	});
	await agent("react").getByRole("button", { name: "run", exact: true }).click();
	await agent("react")
		.getByText(/calculator\(/)
		.first()
		.waitFor();
	await fetch(`${control}/kill`, { method: "POST" });
	await agent("react").getByText("connection lost; joining again…").waitFor();
	await shot("killed");
	await fetch(`${control}/start`, { method: "POST" });
	await agent("react").getByText("succeeded").waitFor({ timeout: 90_000 });
	await counted(agent("react").getByText(/calculator\(/), (calls) => calls >= 8);
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
