// What the first walk leaves out: a supervisor that routes, sources on a node, a denied call, filters and branches of runs,
// versions of a document and what its removal leaves. `node e2e/details.mjs BASE_URL SHOTS_FOLDER`
import assert from "node:assert/strict";
import { launch, walker } from "./browser.mjs";

const [base, shots] = process.argv.slice(2);
const browser = await launch();
const { page, complaints, outside, shot, agent, palette, step, counted, accessibleEverywhere, link, imported } =
	await walker(browser, base, shots);
const json = async (path) => (await fetch(base + path)).json();
const base64 = (text) => Buffer.from(text).toString("base64");
/** Turns of the scripted model: what it says to one question after the other. */
const says = (id, ...turns) =>
	`[[id=${id} says=${turns.map((one) => base64(typeof one === "string" ? one : JSON.stringify(one))).join(",")}]]`;

const FEE = "A winch launch costs 12 euros on every flying day.";
const PAGE = `# Winch\n\n${FEE}\n`;

function canvas(nodes, edges = []) {
	return { format: "riverrun.canvas", version: 1, name: "Details", namespace: "default", nodes, edges };
}
const node = (name, task) => ({ id: "a", kind: "agent", x: 0, y: 0, data: { agent: name, task } });
const run = (name) => agent(name).getByRole("button", { name: "run", exact: true }).click();
const ended = (name, status) => agent(name).getByText(status, { exact: true }).waitFor();

/** Files by their names. */
async function upload(texts) {
	const files = Object.entries(texts).map(([name, text]) => ({
		name,
		mimeType: "text/markdown",
		buffer: Buffer.from(text),
	}));
	await page.locator("input[type=file]").setInputFiles(files);
	await page.getByRole("button", { name: "Upload", exact: true }).click();
	await page.getByText(`${files.length} of ${files.length}: ${files.length} indexed`).waitFor();
}

await step("a file goes into a collection", async () => {
	await page.goto(`${base}/ui/collections/`);
	await page.getByLabel("collection", { exact: true }).fill("club");
	await upload({ "winch.md": PAGE });
});

await step("files that are sent later show how far they are, too", async () => {
	await page.getByLabel("collection", { exact: true }).fill("later");
	await upload({ "first.md": "# First\n\nThe first page.\n", "second.md": "# Second\n\nThe second page.\n" });
	const gone = await fetch(`${base}/collections/later`, { method: "DELETE" });
	assert.ok(gone.ok, `the collection is not removed: ${gone.status}`);
});

await step(
	"a namespace that is looked at and left as it is changes nothing, and another one counts with Enter",
	async () => {
		await page.getByRole("button", { name: /^club/ }).click();
		await page.getByLabel("query").fill("winch");
		const namespace = page.getByLabel("namespace", { exact: true });
		await namespace.focus();
		await namespace.blur();
		assert.equal(await page.getByLabel("query").inputValue(), "winch");
		await namespace.fill("nobody-s");
		await namespace.press("Enter");
		await page.getByText("No collections in nobody-s.").waitFor();
		await namespace.fill("");
		await namespace.press("Enter");
		await page.getByRole("button", { name: /^club/ }).waitFor();
		assert.equal(await namespace.inputValue(), "default");
	},
);

await step("a supervisor routes, and its node says to whom", async () => {
	await page.goto(base);
	await page.locator(".react-flow__pane").waitFor();
	await imported(canvas([node(null, "[[steps=1 id=web-route]] Work this out step by step.")]));
	await run("supervisor");
	await ended("supervisor", "succeeded");
	const { items } = await json("/runs?limit=1");
	await agent("supervisor").getByText(`→ ${items[0].agent}`).waitFor();
	const cut = await agent("supervisor")
		.getByLabel("name of the agent")
		.evaluate((field) => field.scrollWidth - field.clientWidth);
	assert.ok(cut <= 0, `${cut} pixels of the name are cut off`);
	await shot("routed");
});

await step("an agent reads the collection that is connected, and its source opens on the node", async () => {
	const task = says(
		"web-cited",
		{ thought: "look", tool: "knowledge_search", arguments: { query: "winch launch cost" } },
		{ thought: "enough", tool: "answer", arguments: {} },
		`${FEE.slice(0, -1)} [1].`,
	);
	const collection = { id: "c", kind: "collection", x: -400, y: 0, data: { collection: "club" } };
	await imported(
		canvas([node("react", `${task} What does a winch launch cost?`), collection], [{ from: "c", to: "a" }]),
	);
	await run("react");
	await ended("react", "succeeded");
	await agent("react")
		.getByText(/45 tokens/)
		.waitFor();
	await agent("react")
		.getByText(/knowledge_search\(/)
		.click();
	await agent("react").getByRole("definition").filter({ hasText: '"query": "winch launch cost"' }).first().waitFor();
	await accessibleEverywhere("an answer on its node");
	await agent("react")
		.getByRole("button", { name: /^source 1/ })
		.click();
	const marked = page.getByRole("dialog").locator("mark");
	await marked.waitFor();
	assert.equal(await marked.textContent(), FEE);
	await page.keyboard.press("Escape");
});

await step("an answer has the form that its Markdown gives it, and a number in a table opens its source", async () => {
	const answer = [
		"## Fees",
		"",
		"| what | euros |",
		"|---|--:|",
		`| **winch launch** | ${FEE.slice(0, -1)} [1]. |`,
		"",
		"1. *Wait* for the winch.",
		"   - `cable` on",
		"",
		"```",
		"fees[1] = 12",
		"```",
	].join("\n");
	const task = says(
		"web-formatted",
		{ thought: "look", tool: "knowledge_search", arguments: { query: "winch launch cost" } },
		{ thought: "enough", tool: "answer", arguments: {} },
		answer,
	);
	const collection = { id: "c", kind: "collection", x: -400, y: 0, data: { collection: "club" } };
	await imported(
		canvas([node("react", `${task} What does a winch launch cost?`), collection], [{ from: "c", to: "a" }]),
	);
	await run("react");
	await ended("react", "succeeded");
	const shown = agent("react").locator('[aria-live="polite"]');
	await shown.getByRole("columnheader", { name: /^euros/ }).waitFor();
	await shown.locator("td strong").getByText("winch launch", { exact: true }).waitFor();
	await shown.locator("ol > li em").getByText("Wait", { exact: true }).waitFor();
	await shown.locator("ol ul > li code").getByText("cable", { exact: true }).waitFor();
	await shown.locator("pre").getByText("fees[1] = 12", { exact: true }).waitFor();
	await shown.getByText("Fees", { exact: true }).waitFor();
	// The outline of the page is the same, whatever a model writes.
	await counted(shown.getByRole("heading"), 0);
	await accessibleEverywhere("an answer with a form");
	await shot("formatted-answer");
	await shown
		.locator("td")
		.getByRole("button", { name: /^source 1/ })
		.first()
		.click();
	const marked = page.getByRole("dialog").locator("mark");
	await marked.waitFor();
	assert.equal(await marked.textContent(), FEE);
	await page.keyboard.press("Escape");
});

await step("from afar nodes are simple, and near again they are connected as before", async () => {
	const other = { id: "o", kind: "tool", x: -300, y: 200, data: { tool: "clock" } };
	await imported(canvas([node("react", "Wait."), toolNode(), other], [{ from: "t", to: "a" }]));
	const edges = page.locator(".react-flow__edge");
	const handles = page.locator(".react-flow__handle");
	const endOf = () =>
		edges
			.first()
			.locator("path")
			.first()
			.evaluate((path) => {
				const end = path.getPointAtLength(path.getTotalLength()).matrixTransform(path.getScreenCTM());
				const node = document.querySelector('.react-flow__node[data-id="a"]').getBoundingClientRect();
				return [Math.abs(end.x - node.x) / node.width, Math.abs(end.y - node.y - node.height / 2) / node.height];
			});
	const connected = async () => {
		await counted(edges, 1);
		for (const away of await endOf()) assert.ok(away < 0.1, `the connection ends ${away} of the node away from it`);
	};
	await edges.first().waitFor();
	await connected();
	const zoomOut = page.getByRole("button", { name: "Zoom Out" });
	for (let tries = 0; tries < 12 && (await handles.count()) > 0; tries++) {
		await zoomOut.click();
		await page.waitForTimeout(150);
	}
	await counted(handles, 0);
	await connected();
	await accessibleEverywhere("a canvas from afar");
	await page.getByRole("button", { name: "Fit View" }).click();
	await handles.first().waitFor();
	await page.waitForTimeout(300);
	await connected();
	await link(page.getByRole("article", { name: "tool clock" }), agent("react"));
	await counted(edges, 2);
});

await step(
	"at a quarter of their size nodes are connected with the mouse, and what is hit is no smaller than near by",
	async () => {
		const clock = { id: "o", kind: "tool", x: -300, y: 200, data: { tool: "clock" } };
		await imported(canvas([node("react", "Wait."), toolNode(), clock], [{ from: "t", to: "a" }]));
		const edges = page.locator(".react-flow__edge");
		await counted(edges, 1);
		const scale = () =>
			page.locator(".react-flow__viewport").evaluate((one) => new DOMMatrix(getComputedStyle(one).transform).a);
		for (let now = await scale(); now > 0.25; now = await scale()) {
			await page.getByRole("button", { name: "Zoom Out" }).click();
			await page.waitForFunction(
				(before) =>
					new DOMMatrix(getComputedStyle(document.querySelector(".react-flow__viewport")).transform).a < before,
				now,
			);
		}
		const from = page.getByRole("article", { name: "tool clock" });
		// Only the node below the mouse has handles.
		await from.hover();
		const handle = await from.locator(".react-flow__handle.source").boundingBox();
		await counted(page.locator(".react-flow__handle"), 1);
		// Beside what is drawn of the handle, 24 pixels are there to be hit.
		await page.mouse.move(handle.x + 22, handle.y + handle.height / 2);
		await page.mouse.down();
		const to = await agent("react").boundingBox();
		await page.mouse.move(to.x + to.width / 2, to.y + to.height / 2, { steps: 8 });
		await page.mouse.up();
		await counted(edges, 2);
		// From the input of an agent the other way round, and given up over the node where it began.
		await page.getByRole("button", { name: "undo" }).click();
		await counted(edges, 1);
		await agent("react").hover();
		const input = await agent("react").locator(".react-flow__handle.target").boundingBox();
		for (const [end, count] of [
			[agent("react"), 1],
			[from, 2],
		]) {
			await agent("react").hover();
			await page.mouse.move(input.x + input.width / 2, input.y + input.height / 2);
			await page.mouse.down();
			const { x, y, width, height } = await end.boundingBox();
			await page.mouse.move(x + width / 2, y + height / 2, { steps: 8 });
			await page.mouse.up();
			await counted(edges, count);
		}
		await counted(edges, 2);
		await shot("connected-from-afar");
	},
);

await step("a call that is denied is not made, and the run goes on", async () => {
	await imported(canvas([node("react", "[[steps=1 id=web-deny]] Ask me."), toolNode()], [{ from: "t", to: "a" }]));
	await agent("react").getByText("react", { exact: true }).first().click();
	await page.getByLabel("tool calls that wait for your approval").selectOption("always");
	await run("react");
	await agent("react").getByRole("button", { name: "Deny", exact: true }).click();
	await ended("react", "succeeded");
	const { items } = await json("/runs?limit=1");
	const { steps } = await json(`/runs/${items[0].run_id}`);
	assert.ok(!steps.some((one) => one.kind === "tool_result" && one.tool.result != null), "nothing was calculated");
	await agent("react")
		.getByText(/^calculator: /)
		.waitFor();
	await shot("denied");
});

function toolNode() {
	return { id: "t", kind: "tool", x: -300, y: 0, data: { tool: "calculator" } };
}

await step(
	"what a model writes is words: nothing of it is markup, a picture, or a link before it is asked for",
	async () => {
		const hostile = [
			'<img src=x onerror="window.hacked=1">',
			"<script>window.hacked=1</script>",
			'<a href="https://elsewhere.example/">here</a>',
			"![seen](https://elsewhere.example/seen.png)",
			"[click](javascript:window.hacked=1)",
			"https://elsewhere.example/",
		].join(" ");
		const task = says(
			"web-hostile",
			{ thought: hostile, tool: "calculator", arguments: { expression: "1 + 1" } },
			{ thought: "enough", tool: "answer", arguments: {} },
			hostile,
		);
		await imported(canvas([node("react", task), toolNode()], [{ from: "t", to: "a" }]));
		await run("react");
		await ended("react", "succeeded");
		const { items } = await json("/runs?limit=1");
		const { answer } = await json(`/runs/${items[0].run_id}`);
		// The answer itself is disarmed already; the page takes what is left of it as words, too.
		assert.ok(answer.includes("img src=x") && answer.includes("![seen]"), answer);
		const shown = agent("react").locator('[aria-live="polite"]');
		await shown.getByText("elsewhere.example").first().waitFor();
		assert.equal(await shown.textContent(), answer);
		await counted(page.locator("main").locator("img, script, a[href*=elsewhere], a[href^=javascript]"), 0);
		assert.equal(await page.evaluate(() => window.hacked), undefined);
		// An address is no link before somebody asks for one, and then it says where it leads.
		await shown.getByRole("button", { name: "https://elsewhere.example/", exact: true }).first().click();
		const asked = page.getByRole("dialog", { name: "Open an address" });
		const link = asked.getByRole("link", { name: "Open elsewhere.example" });
		await link.waitFor();
		assert.equal(await link.getAttribute("href"), "https://elsewhere.example/");
		assert.equal(await link.getAttribute("rel"), "noopener noreferrer");
		await accessibleEverywhere("an address of a model");
		await page.keyboard.press("Escape");
		await asked.waitFor({ state: "detached" });
		await shot("hostile-answer");
	},
);

await step(
	"text is seen on its node while a model writes it, and a lost connection goes on behind the last step",
	async () => {
		const other = await page.context().newPage();
		const sockets = [];
		await other.routeWebSocket(/\/ws\/runs\/run_written/, (socket) => {
			sockets.push(socket);
		});
		const saved = {
			canvas: JSON.stringify(canvas([node("react", "Tell me of the weather.")])),
			runs: { a: "run_written" },
			chains: {},
		};
		await other.addInitScript((text) => sessionStorage.setItem("riverrun.canvas", text), JSON.stringify(saved));
		await other.goto(base);
		const written = other.getByRole("article", { name: "agent react" });
		/** The connection of that number, once it is there: it begins behind that step, and says so much. */
		const heard = async (number, after, ...messages) => {
			for (const until = Date.now() + 30_000; sockets.length < number; await other.waitForTimeout(50))
				assert.ok(Date.now() < until, `there are ${sockets.length} connections`);
			const socket = sockets[number - 1];
			assert.equal(new URL(socket.url()).searchParams.get("after"), String(after));
			for (const message of messages) socket.send(JSON.stringify(message));
			return socket;
		};
		const start = { type: "start", run_id: "run_written", agent: "react" };
		const token = (seq, text) => ({ type: "token", seq, text });
		const step = { seq: 1, kind: "thought", agent: "react", text: "It rains on.", at: new Date().toISOString() };

		const first = await heard(1, 0, start, token(1, "It "), token(1, "rains"));
		await written.getByText("It rains", { exact: true }).waitFor();
		await first.close();
		const second = await heard(2, 0, start, token(1, "It rains on"));
		await written.getByText("It rains on", { exact: true }).waitFor();
		await heard(2, 0, { type: "step", step });
		await written.getByText("It rains on.", { exact: true }).waitFor();
		await counted(written.getByText("It rains on", { exact: true }), 0);
		await second.close();
		await heard(3, 1, start, token(2, "And on"));
		await written.getByText("And on", { exact: true }).waitFor();
		// A mark without its end is a word until the end comes.
		const third = await heard(3, 1, token(2, " it **rai"));
		await written.getByText("And on it **rai", { exact: true }).waitFor();
		third.send(JSON.stringify(token(2, "ns**")));
		await written.locator("strong").getByText("rains", { exact: true }).waitFor();
		await other.close();
	},
);

await step("whoever wants less motion sees none", async () => {
	const slow = "[[steps=6 delay_ms=400 id=web-calm]] Count.";
	await imported(canvas([node("react", slow), toolNode()], [{ from: "t", to: "a" }]));
	const moving = () =>
		page.evaluate(() => document.getAnimations().filter(({ playState }) => playState === "running").length);
	await run("react");
	await page.locator(".react-flow__edge.animated").first().waitFor({ state: "attached" });
	assert.ok((await moving()) > 0);
	await page.emulateMedia({ reducedMotion: "reduce" });
	assert.equal(await moving(), 0);
	await page.emulateMedia({ reducedMotion: null });
	await ended("react", "succeeded");
});

await step(
	"a canvas begins at the top of the view, and a node that is clicked comes out from behind the settings",
	async () => {
		const note = { id: "n", kind: "note", x: -560, y: 0, data: { text: "Far left." } };
		await imported(canvas([note, node("react", "Wait.")]));
		const boxOf = (selector) => page.locator(selector).boundingBox();
		const middle = (await boxOf(".react-flow")).height / 2;
		await page.waitForFunction((most) => {
			const view = document.querySelector(".react-flow").getBoundingClientRect();
			const one = document.querySelector('.react-flow__node[data-id="a"]')?.getBoundingClientRect();
			return one && one.top - view.top < most;
		}, middle / 2);
		await agent("react").getByText("react", { exact: true }).first().click();
		await page.getByRole("complementary", { name: "settings" }).waitFor();
		await page.waitForFunction(() => {
			const one = document.querySelector('.react-flow__node[data-id="a"]').getBoundingClientRect();
			return one.right <= document.querySelector('aside[aria-label="settings"]').getBoundingClientRect().left;
		});
		await shot("beside-the-settings");
	},
);

await step("a node that is dragged into a group is in it, and undo takes it out", async () => {
	await imported(
		canvas([
			{ id: "g", kind: "group", x: 0, y: 0, width: 500, height: 300, data: { title: "Notes" } },
			{ id: "n", kind: "note", x: 600, y: 60, data: { text: "in" } },
		]),
	);
	const note = page.getByRole("article", { name: "note" });
	const kept = (group) =>
		page.waitForFunction((wanted) => {
			const { canvas } = JSON.parse(sessionStorage.getItem("riverrun.canvas"));
			return JSON.parse(canvas).nodes.find(({ id }) => id === "n")?.group === wanted;
		}, group);
	await kept(undefined);
	const from = await note.getByText("note", { exact: true }).boundingBox();
	const to = await page.locator('.react-flow__node[data-id="g"]').boundingBox();
	await page.mouse.move(from.x + 5, from.y + 5);
	await page.mouse.down();
	await page.mouse.move(to.x + to.width / 3, to.y + to.height / 3, { steps: 8 });
	await page.mouse.up();
	await kept("g");
	await shot("in-a-group");
	await page.getByRole("button", { name: "undo" }).click();
	await kept(undefined);
});

await step("a graph is built and run by keyboard alone", async () => {
	const settings = page.getByRole("complementary", { name: "settings" });
	const pressed = async (at, key) => {
		await at.focus();
		await page.keyboard.press(key);
	};
	await pressed(page.getByRole("button", { name: "new canvas" }), "Enter");
	await agent("react").waitFor({ state: "detached" });
	await pressed(palette("calculator"), "Enter");
	await pressed(palette("react"), "Enter");
	await agent("react").waitFor();
	await pressed(page.locator(".react-flow__node").filter({ has: agent("react") }), "Enter");
	await pressed(settings.getByLabel("connect an input"), "ArrowDown");
	await counted(page.locator(".react-flow__edge"), 1);
	await agent("react").getByLabel("task").focus();
	await page.keyboard.type("[[steps=1 id=web-keys]] Count.");
	await page.keyboard.press("Control+Enter");
	await ended("react", "succeeded");
	await agent("react")
		.getByText(/calculator\(/)
		.first()
		.waitFor();
	await shot("by-keyboard");
});

await step("runs are found by what they are, and branches of one stand below each other", async () => {
	const { items } = await json("/runs?limit=10");
	const cited = items.find((one) => one.task.includes("web-cited"));
	await page.goto(`${base}/ui/runs/?id=${cited.run_id}`);
	const runs = page.getByRole("region", { name: "Runs" }).getByRole("listitem");
	const shown = (count) => counted(runs, count);
	await shown(items.length);
	await page.getByLabel("agent", { exact: true }).selectOption("react");
	await shown(items.filter((one) => one.agent === "react").length);
	await page.getByLabel("status").selectOption("cancelled");
	await page.getByText("No run is like this.").waitFor();
	await page.getByLabel("status").selectOption("succeeded");
	await runs.first().waitFor();
	const namespace = page.getByLabel("namespace", { exact: true });
	for (const [name, found] of [
		["elsewhere", page.getByText("No run is like this.")],
		["default", runs.first()],
	]) {
		await namespace.fill(name);
		await namespace.press("Enter");
		await found.waitFor();
	}
	await page.getByRole("button", { name: "fork after step 3" }).click();
	const branches = page.getByRole("region", { name: "Branches" });
	await branches.getByText(/from step 3/).waitFor();
	await counted(branches.getByText("succeeded", { exact: true }), 2);
	const beside = await branches.evaluate((panel) => panel.scrollWidth - panel.clientWidth);
	assert.ok(beside <= 0, `the branches are ${beside} pixels wider than their panel`);
	await accessibleEverywhere("branches of a run");
	await shot("branches");
});

await step("a document keeps the versions that it had, and one is removed with a receipt", async () => {
	await page.goto(`${base}/ui/collections/`);
	await page.getByRole("button", { name: "upload/winch.md", exact: true }).waitFor();
	await upload({ "winch.md": PAGE.replace("12", "14") });
	await page.getByRole("button", { name: "upload/winch.md", exact: true }).click();
	const dialog = page.getByRole("dialog");
	const versions = dialog.getByLabel("versions: 2");
	await versions.waitFor();
	await dialog.getByText(/14 euros/).waitFor();
	await versions.selectOption({ index: 0 });
	await dialog.getByText(/12 euros/).waitFor();
	await dialog.getByRole("button", { name: "Remove this document" }).click();
	await dialog.getByRole("button", { name: "Remove", exact: true }).click();
	const receipt = page.getByRole("region", { name: "Receipt" });
	await receipt.getByText(/^Gone: 1 document, \d+ vectors?, \d+ chunks? of the keyword index/).waitFor();
	// It was the only one of its collection, and the receipt stays.
	await page.getByText("No collections in default.").waitFor();
	await receipt.waitFor();
	await accessibleEverywhere("a receipt");
	await shot("receipt");
});

await step("templates that read a collection run as they are", async () => {
	await page.goto(`${base}/ui/collections/`);
	await page.getByLabel("collection", { exact: true }).fill("handbook");
	await upload({ "winch.md": PAGE });
	await page.goto(base);
	for (const [template, last] of [
		["Ask the handbook", "react"],
		["Research, then rewrite", "supervisor"],
	]) {
		await page.getByRole("button", { name: "new canvas" }).click();
		await page.getByRole("button", { name: new RegExp(`^${template}`) }).click();
		await run(last);
		await ended(last, "succeeded");
	}
});

await step("an agent is named by keyboard, and the name is there wherever it is spoken of", async () => {
	await page.goto(base);
	await page.locator(".react-flow__pane").waitFor();
	await imported(canvas([node("react", "[[steps=1 id=web-named]] Count."), toolNode()], [{ from: "t", to: "a" }]));
	await page.locator('.react-flow__node[data-id="a"]').focus();
	await page.keyboard.press("Enter");
	await page.getByRole("complementary", { name: "settings" }).getByLabel("name", { exact: true }).waitFor();
	await page.keyboard.press("F2");
	await page.keyboard.type("Counter");
	await page.keyboard.press("Enter");
	await run("Counter");
	await ended("Counter", "succeeded");
	await accessibleEverywhere("an agent with a name");
	await shot("named");
	await page.keyboard.press("Control+k");
	await page.getByLabel("search the canvas").fill("counter");
	await page
		.getByRole("dialog")
		.getByRole("button", { name: /Counter/ })
		.waitFor();
	await page.keyboard.press("Escape");
	await page.reload();
	await ended("Counter", "succeeded");
	await agent("Counter").getByRole("link", { name: "in full" }).click();
	await page
		.getByRole("region", { name: "Runs" })
		.getByText(/Counter · react/)
		.first()
		.waitFor();
	await page.goBack();
	await agent("Counter").waitFor();
});

await step("everything on a canvas runs at once, rows as rows, and is stopped at once", async () => {
	const at = (id, x, y, task) => ({ ...node("react", task), id, x, y });
	const states = (status, count) => counted(page.getByRole("article").getByText(status, { exact: true }), count);
	await imported(
		canvas(
			[
				at("a", 0, 0, "[[steps=0 id=web-all-1]] Think."),
				at("b", 500, 0, "[[steps=0 id=web-all-2]] Go on: {{input}}"),
				at("c", 0, 400, "[[steps=0 id=web-all-3]] Think."),
				at("d", 500, 400, ""),
			],
			[{ from: "a", to: "b" }],
		),
	);
	await page.getByRole("button", { name: "run all" }).click();
	await page.getByText("3 agents are started; 1 agent is left out for want of a task").waitFor();
	await states("succeeded", 3);
	await shot("run-all");
	const slow = (id) => `[[steps=50 delay_ms=400 id=${id}]] Count for ever.`;
	await imported(canvas([at("a", 0, 0, slow("web-all-4")), at("c", 0, 400, slow("web-all-5"))]));
	await page.locator(".react-flow__pane").click({ position: { x: 8, y: 8 } });
	await page.keyboard.press("Control+Shift+Enter");
	await states("running", 2);
	await page.keyboard.press("Control+.");
	await states("cancelled", 2);
	await page.getByRole("button", { name: "stop all", disabled: true }).waitFor();
});

await step("a collection of many documents is read page by page", async () => {
	const names = Array.from({ length: 60 }, (_, n) => `page-${String(n).padStart(2, "0")}.md`);
	const texts = Object.fromEntries(names.map((name) => [name, `# ${name}\n\n${FEE}\n`]));
	await page.goto(`${base}/ui/collections/`);
	await page.getByLabel("collection", { exact: true }).fill("many");
	await upload(texts);
	await page.getByRole("region", { name: "Collections", exact: true }).getByRole("button", { name: /^many/ }).click();
	const documents = page.getByRole("button", { name: /^upload\/page-\d\d\.md$/ });
	await counted(documents, 50);
	await page.getByRole("button", { name: "Next page" }).click();
	await counted(documents, 10);
	await accessibleEverywhere("the second page of documents");
	await page.getByRole("button", { name: "Previous page" }).click();
	await counted(documents, 50);
});

await step("nothing is asked of anyone else, and nothing went wrong unseen", () => {
	assert.deepEqual(outside, []);
	// Documents of a collection that has just gone are asked for once more.
	const unexpected = complaints.filter((text) => !/404 .*\/documents\?.*collection=club/.test(text));
	assert.deepEqual(unexpected, []);
});
await browser.close();
