// The system page: services, what was measured of models, and dead letters that are handed in again or dropped.
// `node e2e/system.mjs BASE_URL SHOTS_FOLDER TOPIC`, with one dead letter of the topic that nobody can read.
import assert from "node:assert/strict";
import { launch, walker } from "./browser.mjs";

const [base, shots, topic] = process.argv.slice(2);
const browser = await launch();
const { page, complaints, shot, step, counted, accessibleEverywhere } = await walker(browser, base, shots);
const letters = page.getByRole("list", { name: "dead letters" }).getByRole("listitem").filter({ hasText: topic });
const known = async () => (await (await fetch(`${base}/dlq?topic=${topic}`)).json()).items;

await step("what could not be handled is shown with its reason", async () => {
	await page.goto(`${base}/ui/system/`);
	await letters.first().waitFor();
	const [letter] = await known();
	await letters.getByText(letter.reason).waitFor();
	await letters.getByText(/open/).waitFor();
	await accessibleEverywhere("dead letters");
	await shot("dead-letters");
});

await step("a dead letter is handed in again, and comes back when it still can't be read", async () => {
	await letters.getByRole("button", { name: "Redrive" }).click();
	await letters.filter({ hasText: "redriven" }).waitFor();
	await letters.filter({ hasText: "open" }).waitFor();
	const statuses = (await known()).map((letter) => letter.status);
	assert.deepEqual(statuses, ["redriven", "open"]);
	// What was handled has nothing more to press.
	await counted(letters.filter({ hasText: "redriven" }).getByRole("button"), 0);
	await shot("redriven");
});

await step("one that needs nothing is dropped, after it was asked which record that is", async () => {
	const question = page.getByRole("dialog", { name: "Drop this record?" });
	const drop = letters.getByRole("button", { name: "Drop" });
	const [open] = (await known()).filter((letter) => letter.status === "open");
	await drop.click();
	await question.getByText(`${topic}, partition ${open.partition}, offset ${open.offset}`).waitFor();
	await question.getByText(open.reason).waitFor();
	await question.getByRole("button", { name: "Redrive" }).waitFor();
	await accessibleEverywhere("before a record is dropped");
	await shot("drop");
	await question.getByRole("button", { name: "Keep it" }).click();
	await question.waitFor({ state: "detached" });
	await drop.click();
	await page.keyboard.press("Escape");
	await question.waitFor({ state: "detached" });
	assert.deepEqual(
		(await known()).map((letter) => letter.status),
		["redriven", "open"],
	);
	await drop.click();
	await question.getByRole("button", { name: "Drop" }).click();
	await letters.filter({ hasText: "dropped" }).waitFor();
	await counted(letters.getByRole("button"), 0);
	const statuses = (await known()).map((letter) => letter.status);
	assert.deepEqual(statuses, ["redriven", "dropped"]);
});

await step("every service and every worker's lag is shown", async () => {
	const { services, lag } = await (await fetch(`${base}/health`)).json();
	const header = (region, name) =>
		page.getByRole("region", { name: region, exact: true }).getByRole("rowheader").filter({ hasText: name }).first();
	assert.ok(services.length > 0 && Object.keys(lag).length > 0);
	for (const { name } of services) await header("Services", name).waitFor();
	for (const group of Object.keys(lag)) await header("Behind", group).waitFor();
});

await step("what was measured of a model is shown", async () => {
	const { items } = await (await fetch(`${base}/models/cards`)).json();
	const models = page.getByRole("region", { name: "Models" });
	for (const card of items)
		await models
			.getByRole("row", { name: new RegExp(card.model) })
			.getByText(`${card.valid_json} of ${card.questions}`)
			.first()
			.waitFor();
	assert.ok(items.length > 0);
	await accessibleEverywhere("the system page");
	await shot("system");
});

await step("nothing went wrong unseen", () => assert.deepEqual(complaints, []));
await browser.close();
