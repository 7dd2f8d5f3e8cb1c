// What a real model of this machine writes is seen on its node while it is written, and is what the server has at the end: with a
// source that opens at its span, and through a reload in the middle. `node e2e/streamed.mjs BASE_URL SHOTS_FOLDER HANDBOOK_FOLDER`,
// where the files of that folder are the collection `handbook`.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { basename, join } from "node:path";
import { launch, walker } from "./browser.mjs";

const [base, shots, handbook] = process.argv.slice(2);
const THINKS_MS = 600_000;
/** A model of this size may leave the source of one of them unnamed, or answer in a word. */
const QUESTIONS = [
	"What does a winch launch cost?",
	"What does an aerotow to 600 metres cost?",
	"What does the two-seater cost per minute?",
];
/** One of them is still being written when the page is back, however fast the machine is. */
const STORIES = [
	"Write a long story about a river, at least thirty sentences. Use no tool.",
	"Explain in many sentences how a glider is launched by a winch and how it lands. Use no tool.",
	"Name every month of the year, and write three sentences about each. Use no tool.",
];

const browser = await launch();
const { page, complaints, outside, shot, step, agent, imported } = await walker(browser, base, shots);
const node = agent("react");
const end = node.getByText(/^(succeeded|failed|cancelled)$/);
const shown = node.locator('[aria-live="polite"]');
const json = async (path) => (await fetch(base + path)).json();

// In every document of this page, from its beginning: each text that stands on the node while the run goes on. Whatever changes it
// is seen, nobody looks now and again.
await page.addInitScript(() => {
	window.seen = [];
	const look = () => {
		const article = document.querySelector('article[aria-label="agent react"]');
		const text = article?.querySelector('[role="group"][aria-label="what the model is writing"]')?.textContent;
		const isGoing = Boolean(article?.querySelector('button[aria-label="stop"]'));
		if (text && isGoing && text !== window.seen.at(-1)) window.seen.push(text);
	};
	new MutationObserver(look).observe(document, { subtree: true, childList: true, characterData: true });
});

/** What was seen being written since the page came, or since the run was started. */
const seen = () => page.evaluate(() => window.seen);
/** How long the texts were, each length once. */
const lengths = (texts) => [...new Set(texts.map((text) => text.length))];
/** Waits until text was seen to grow, or the run has ended; tells which. */
async function grows() {
	const asked = { timeout: THINKS_MS };
	const found = await page.waitForFunction(
		() => {
			if (new Set(window.seen.map((text) => text.length)).size >= 2) return "grows";
			const article = document.querySelector('article[aria-label="agent react"]');
			const ended = [...(article?.querySelectorAll("header span") ?? [])].some((one) =>
				/^(succeeded|failed|cancelled)$/.test(one.textContent ?? ""),
			);
			return ended && "ended";
		},
		null,
		asked,
	);
	return (await found.jsonValue()) === "grows";
}

/** The letters and digits of a text, without what Markdown draws otherwise than it is written. */
function words(text) {
	const plain = text.replace(/^[\s>*+-]*(?:\d{1,9}[.)](?=\s)|```\S*)/gm, "");
	return plain.replace(/[^\p{L}\p{N}]/gu, "");
}

/** Puts a task to the agent on a canvas of its own, and starts it. Gives the run's id. */
async function begin(task, collection) {
	const nodes = [{ id: "a", kind: "agent", x: 0, y: 0, data: { agent: "react", name: "react", task } }];
	if (collection) nodes.push({ id: "c", kind: "collection", x: -400, y: 0, data: { collection } });
	const edges = collection ? [{ from: "c", to: "a" }] : [];
	await imported({ format: "riverrun.canvas", version: 1, name: "Streamed", namespace: "default", nodes, edges });
	await end.waitFor({ state: "detached" });
	await page.evaluate(() => {
		window.seen.length = 0;
	});
	const [started] = await Promise.all([
		page.waitForResponse((one) => one.request().method() === "POST" && new URL(one.url()).pathname === "/chains"),
		node.getByRole("button", { name: "run", exact: true }).click(),
	]);
	return (await started.json()).runs[0].run_id;
}

/** The run as the server has it once it has noted the end: the stream is ahead of it. */
async function ended(id) {
	await end.waitFor({ timeout: THINKS_MS });
	for (const until = Date.now() + 30_000; ; await page.waitForTimeout(100)) {
		const run = await json(`/runs/${id}`);
		if (run.finished_at) return run;
		assert.ok(Date.now() < until, `the server has the run as ${run.status}`);
	}
}

/** The node shows the answer that the server has, and what was seen of it while it was written was of these words. */
async function isWhole(run, texts) {
	const answer = run.steps.findLast(({ kind }) => kind === "answer")?.text;
	assert.ok(answer && run.answer, "the run has no answer");
	await page.waitForFunction(
		([place, length]) => (document.querySelector(place)?.textContent ?? "").length >= length / 2,
		['article[aria-label="agent react"] [aria-live="polite"]', run.answer.length],
	);
	assert.equal(words(await shown.textContent()), words(run.answer));
	assert.ok(words(answer).includes(words(texts.at(-1))), `${JSON.stringify(texts.at(-1))} is not of ${answer}`);
}

await step("what a real model writes grows on its node, is its answer at the end, and opens its source", async () => {
	await page.goto(base);
	await page.locator(".react-flow__pane").waitFor();
	const tried = [];
	let cited;
	for (const question of QUESTIONS) {
		const run = await ended(await begin(question, "handbook"));
		const texts = await seen();
		tried.push({ question, status: run.status, answer: run.answer, lengths: lengths(texts) });
		if (run.citations.length > 0 && lengths(texts).length >= 2) {
			cited = { run, texts };
			break;
		}
	}
	assert.ok(cited, `no answer was seen to grow that names a source: ${JSON.stringify(tried)}`);
	const { run, texts } = cited;
	assert.equal(run.status, "succeeded");
	assert.ok(texts.at(-1).length > texts[0].length, `it did not grow: ${JSON.stringify(texts)}`);
	await isWhole(run, texts);
	await shot("streamed-answer");
	const [{ n, source, span, quote }] = run.citations;
	await node
		.getByRole("button", { name: new RegExp(`^source ${n}: `) })
		.first()
		.click();
	const marked = page.getByRole("dialog").locator("mark");
	await marked.waitFor();
	const bytes = readFileSync(join(handbook, basename(source))).subarray(span.start, span.end);
	assert.equal(await marked.textContent(), bytes.toString());
	assert.equal(await page.getByRole("dialog").locator("blockquote").textContent(), quote);
	await shot("streamed-source");
	await page.keyboard.press("Escape");
});

await step("a reload in the middle of what a model writes goes on with it to its end", async () => {
	const tried = [];
	for (const story of STORIES) {
		const id = await begin(story);
		if (!(await grows())) {
			tried.push({ story, before: lengths(await seen()) });
			continue;
		}
		await shot("streamed-before-reload");
		await page.reload();
		const goesOn = await grows();
		const texts = await seen();
		tried.push({ story, after: lengths(texts) });
		// It had ended before the page was back.
		if (!goesOn) continue;
		const run = await ended(id);
		assert.equal(run.status, "succeeded");
		const all = await seen();
		assert.ok(all.at(-1).length > all[0].length, `it did not grow: ${JSON.stringify(lengths(all))}`);
		await isWhole(run, all);
		await shot("streamed-after-reload");
		return;
	}
	assert.fail(`nothing was still being written when the page was back: ${JSON.stringify(tried)}`);
});

await step("nothing is asked of anyone else, and nothing went wrong unseen", () => {
	assert.deepEqual(outside, []);
	assert.deepEqual(complaints, []);
});
await browser.close();
