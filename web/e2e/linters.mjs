// The linters of the projects page, installed and removed by their buttons. `node e2e/linters.mjs BASE_URL SHOTS_FOLDER REGISTRY`
// REGISTRY is `away` (a stand-in for ruff is installed, and no package can be fetched) or `there`.
import assert from "node:assert/strict";
import { launch, walker } from "./browser.mjs";

const [base, shots, registry] = process.argv.slice(2);
const INSTALLS_MS = 300_000;
const browser = await launch();
const { page, complaints, shot, step, accessibleEverywhere } = await walker(browser, base, shots);
const linters = page.getByRole("region", { name: "Linters" });
const ruff = linters.getByRole("listitem").filter({ has: page.getByText("ruff", { exact: true }) });
const install = ruff.getByRole("button", { name: /^Install ruff \d/ });
const state = (word) => ruff.getByText(word, { exact: true });
const known = async () => {
	const { items } = await (await fetch(`${base}/projects/tools`)).json();
	return items.find((one) => one.name === "ruff");
};

async function remove() {
	const button = ruff.getByRole("button", { name: "Remove ruff" });
	const question = page.getByRole("dialog", { name: "Remove ruff?" });
	await button.click();
	await question.getByRole("button", { name: "Keep it" }).click();
	await question.waitFor({ state: "detached" });
	// Whoever goes by keyboard is where they were.
	await page.waitForFunction(() => document.activeElement?.textContent === "Remove ruff");
	await button.click();
	assert.equal((await known()).status, "installed");
	await question.getByRole("button", { name: "Remove" }).click();
	await state("missing").waitFor();
	await install.waitFor();
	assert.equal((await known()).status, "missing");
}

const walks = {
	async away() {
		await step("a linter is removed by its button", async () => {
			await page.goto(`${base}/ui/projects/`);
			await remove();
		});
		await step("one that can't be fetched says why, and may be tried again", async () => {
			await install.click();
			const why = linters.getByRole("alert");
			await why.waitFor({ timeout: INSTALLS_MS });
			const reason = await why.textContent();
			assert.match(reason, /ruff/);
			assert.match(reason, /registry can't be reached|pip/);
			await state("missing").waitFor();
			assert.equal(await install.isEnabled(), true);
			await accessibleEverywhere("a linter that can't be fetched");
			await shot("linter-not-fetched");
		});
	},
	async there() {
		await step("a linter is installed by its button, in the version that is listed, and removed", async () => {
			await page.goto(`${base}/ui/projects/`);
			await install.click();
			await state("installed").waitFor({ timeout: INSTALLS_MS });
			const tool = await known();
			assert.equal(tool.installed_version, tool.version);
			await state(tool.version).waitFor();
			await shot("linter-installed");
			await remove();
		});
	},
};

await walks[registry]();
await step("nothing went wrong unseen", () => {
	assert.deepEqual(
		complaints.filter((text) => !/(422|503) .*\/projects\/tools/.test(text)),
		[],
	);
});
await browser.close();
