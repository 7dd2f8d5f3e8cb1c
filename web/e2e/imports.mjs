// Code from where the server finds it: a folder by its path, a repository by its address. `node e2e/imports.mjs BASE_URL SHOTS_FOLDER FOLDER REPOSITORY`
// Both have one file, `a.py`.
import assert from "node:assert/strict";
import { launch, walker } from "./browser.mjs";

const [base, shots, folder, repository] = process.argv.slice(2);
const CLONES_MS = 60_000;
const browser = await launch();
const { page, complaints, shot, step, accessibleEverywhere } = await walker(browser, base, shots);
const form = page.getByRole("form", { name: "import" });
const nameOf = (source) => source.split("/").at(-1);
const project = (source) => page.getByRole("region", { name: nameOf(source), exact: true });

async function take(source) {
	await page.goto(`${base}/ui/projects/`);
	await form.getByLabel(/folder on the server/).fill(source);
	await form.getByRole("button", { name: "Import", exact: true }).click();
}

for (const [what, source] of [
	["a folder of the server", folder],
	["a git repository", repository],
]) {
	await step(`${what} is imported by its address`, async () => {
		await take(source);
		await project(source).getByText("imported", { exact: true }).waitFor({ timeout: CLONES_MS });
		await project(source)
			.getByText(/^1 file, .*python 1 line/)
			.waitFor();
		const id = new URL(page.url()).searchParams.get("id");
		const { items } = await (await fetch(`${base}/projects/${id}/files`)).json();
		assert.deepEqual(
			items.map((one) => one.path),
			["a.py"],
		);
		await page
			.getByRole("region", { name: "Projects", exact: true })
			.getByRole("link", { name: new RegExp(nameOf(source)) })
			.waitFor();
		await accessibleEverywhere(what);
		await shot(`imported-${what.replaceAll(" ", "-")}`);
	});
}

await step("a folder that may not be read is refused with the reason, and what was typed stays", async () => {
	await take("/etc");
	await form.getByRole("alert").waitFor();
	assert.equal(await form.getByLabel(/folder on the server/).inputValue(), "/etc");
	assert.equal(await form.getByRole("button", { name: "Import", exact: true }).isEnabled(), true);
	await shot("import-refused");
});

await step("a repository that is not there is an import that failed and says so", async () => {
	const missing = repository.replace(nameOf(repository), "missing.git");
	await take(missing);
	await project(missing).getByText("failed", { exact: true }).waitFor({ timeout: CLONES_MS });
	await project(missing).getByRole("alert").waitFor();
	assert.equal(await project(missing).getByRole("button", { name: "Analyze" }).isEnabled(), false);
});

await step("nothing went wrong unseen", () => {
	assert.deepEqual(
		complaints.filter((text) => !/4\d\d .*\/projects\/import/.test(text)),
		[],
	);
});
await browser.close();
