// The fine-tuning page through a job that really trains. `node e2e/finetune.mjs BASE_URL CONTROL_URL SHOTS_FOLDER BASE_MODEL`
import assert from "node:assert/strict";
import { launch, walker } from "./browser.mjs";

const [base, control, shots, model] = process.argv.slice(2);
const TRAINS_MS = 120_000;
const browser = await launch();
const { page, complaints, shot, step, accessibleEverywhere } = await walker(browser, base, shots);
const dataset = page.getByRole("form", { name: "new dataset" });
const job = page.getByRole("form", { name: "new training" });
const status = (word) => page.getByText(word, { exact: true }).first();

async function stageOf(model, version) {
	const { items } = await (await fetch(`${base}/finetune/registry`)).json();
	return items.find((one) => one.model === model && one.version === version).stage;
}

const lines = ["red", "green", "blue", "amber"].flatMap((colour) =>
	["lamp", "river", "winch", "cloud"].map((thing) => ({
		prompt: `Say ${colour} ${thing}`,
		completion: `${thing}:${colour}`,
	})),
);

async function start(name, steps, rate = "") {
	await job.getByLabel("name of the model").fill(name);
	await job.getByLabel("base model").fill(model);
	await job.getByLabel("most steps").fill(String(steps));
	const rateField = job.getByLabel("learning rate");
	if (!(await rateField.isVisible())) await job.getByText("more settings").click();
	await rateField.fill(rate);
	// A time before the start, and what it takes of memory.
	await job.getByText(/about .* for .* steps/).waitFor();
	await job.getByRole("button", { name: "Start" }).click();
	await page.getByRole("heading", { name, exact: true }).waitFor();
}

await step("examples are taken in", async () => {
	await page.goto(`${base}/ui/finetuning/`);
	await dataset.getByLabel("name").fill("lamps");
	const buffer = Buffer.from(lines.map((line) => JSON.stringify(line)).join("\n"));
	await dataset
		.locator("input[type=file]")
		.setInputFiles({ name: "lamps.jsonl", mimeType: "application/x-ndjson", buffer });
	await dataset.getByRole("button", { name: "Upload" }).click();
	await dataset.getByText("16 examples taken in.").waitFor();
});

await step("a training runs, and its curves come while it does", async () => {
	// Fast, so that a model of two tiny layers has the examples by heart when it ends.
	await start("lamps", 600, "0.01");
	await page.getByText(/step \d+ of 600 · loss/).waitFor({ timeout: TRAINS_MS });
	await page.locator(".uplot canvas").first().waitFor();
	await accessibleEverywhere("a training that runs");
	await shot("training");
	await page.reload();
	await page.getByText(/step \d+ of 600/).waitFor();
	await page.getByText("made lamps@1").waitFor({ timeout: TRAINS_MS });
	// The list says the same as the training that is open.
	await page.getByRole("region", { name: "Trainings" }).getByText("succeeded", { exact: true }).waitFor();
	await shot("trained");
});

await step("a training is cancelled", async () => {
	await start("stopped", 100_000);
	await page.getByText(/step \d+ of 100,000 · loss/).waitFor({ timeout: TRAINS_MS });
	await page.getByRole("button", { name: "Cancel" }).click();
	// It can't be taken back: it is asked first, while the training goes on.
	const question = page.getByRole("dialog", { name: "Cancel the training stopped?" });
	await question.getByRole("button", { name: "Let it go on" }).click();
	await question.waitFor({ state: "detached" });
	await page.getByRole("button", { name: "Cancel" }).click();
	await question.getByRole("button", { name: "Cancel the training" }).click();
	await status("cancelled").waitFor({ timeout: TRAINS_MS });
});

await step("its version is tried beside its base, and moves between stages", async () => {
	await page.getByRole("button", { name: "Try lamps@1" }).click();
	const dialog = page.getByRole("dialog");
	await dialog.getByLabel("words for both").fill("Say red lamp");
	const asWritten = dialog.getByLabel("show answers as they were written");
	await asWritten.check();
	await dialog.getByRole("button", { name: "Ask both" }).click();
	// Each side says what its own model says to these words, and the training shows: one has it by heart, the other has never seen it.
	const texts = [];
	for (const side of ["lamps@1", model]) {
		const said = dialog.getByRole("region", { name: side });
		await said.getByText(/tokens? in/).waitFor({ timeout: TRAINS_MS });
		const answer = await fetch(`${base}/chat`, {
			method: "POST",
			headers: { "content-type": "application/json" },
			body: JSON.stringify({
				provider: "local",
				model: side,
				messages: [{ role: "user", content: "Say red lamp" }],
				temperature: 0,
				max_tokens: 256,
				stream: false,
			}),
		});
		const { text } = await answer.json();
		assert.equal(await said.locator("p").first().textContent(), text, side);
		texts.push(text);
	}
	assert.equal(texts[0], "lamp:red");
	await asWritten.uncheck();
	await dialog.getByRole("region", { name: "lamps@1" }).getByText(texts[0], { exact: true }).waitFor();
	assert.doesNotMatch(texts[1], /lamp:red/);
	await accessibleEverywhere("side by side");
	await shot("side-by-side");
	await page.keyboard.press("Escape");
	// It ends by itself and says what was merged: the gate let it pass.
	await status("ready").waitFor();
	await page.getByRole("button", { name: "Retire lamps@1" }).click();
	const takeBack = page.getByRole("button", { name: "Take back lamps@1" });
	await takeBack.waitFor();
	assert.equal(await stageOf("lamps", 1), "retired");
	await takeBack.click();
	const makeReady = page.getByRole("button", { name: "Make ready lamps@1" });
	await makeReady.waitFor();
	await status("candidate").waitFor();
	assert.equal(await stageOf("lamps", 1), "candidate");
	await makeReady.click();
	await makeReady.waitFor({ state: "detached" });
	await status("ready").waitFor();
	await page.getByRole("button", { name: "Retire lamps@1" }).waitFor();
	assert.equal(await stageOf("lamps", 1), "ready");
	await shot("stages");
});

await step("a server that is killed while it trains goes on, and so does the page", async () => {
	await start("killed", 1500);
	await page.getByText(/step \d+ of 1,500 · loss/).waitFor({ timeout: TRAINS_MS });
	await fetch(`${control}/kill`, { method: "POST" });
	await page.getByText(/The backend is offline/).waitFor();
	await fetch(`${control}/start`, { method: "POST" });
	await page.getByText("made killed@1").waitFor({ timeout: TRAINS_MS });
});

const unexpected = complaints.filter(
	(text) => !/ERR_CONNECTION_REFUSED|WebSocket connection|ERR_EMPTY_RESPONSE|ERR_CONNECTION_RESET/.test(text),
);
await step("nothing went wrong unseen", () => assert.deepEqual(unexpected, []));
await browser.close();
