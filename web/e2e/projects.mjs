// The projects page from a zip archive to a report. `node e2e/projects.mjs BASE_URL SHOTS_FOLDER`
import assert from "node:assert/strict";
import { launch, walker } from "./browser.mjs";
import { zip } from "./zip.mjs";

const [base, shots] = process.argv.slice(2);
const ANALYZES_MS = 120_000;
const browser = await launch();
const { page, complaints, shot, step, counted, accessibleEverywhere } = await walker(browser, base, shots);

const nested = Array.from({ length: 8 }, (_, depth) => `${"    ".repeat(depth + 1)}if a > ${depth}:\n`).join("");
const files = {
	"demo/app.py": `import os\n\n\ndef deep(a):\n${nested}${"    ".repeat(9)}return a\n    return eval(str(a))\n`,
	"demo/README.md": "# Demo <script>window.hacked=1</script>\n",
};

await step("a zip archive is imported", async () => {
	await page.goto(`${base}/ui/projects/`);
	const archive = { name: "demo.zip", mimeType: "application/zip", buffer: zip(files) };
	await page.locator("input[type=file]").setInputFiles(archive);
	await page.getByRole("button", { name: "Import", exact: true }).click();
	await page
		.getByText(/2 files, /)
		.first()
		.waitFor();
	await page.getByText("imported", { exact: true }).first().waitFor();
});

await step("it is analyzed, and the report has figures, charts and findings", async () => {
	await page.getByRole("button", { name: "Analyze", exact: true }).click();
	await page.getByRole("heading", { name: "By severity" }).waitFor({ timeout: ANALYZES_MS });
	await page.getByRole("heading", { name: "Figures" }).waitFor();
	// The list says the same as the project that is open.
	await page.getByRole("region", { name: "Projects" }).getByText("analyzed", { exact: true }).waitFor();
	await page
		.getByText(/app\.py/)
		.first()
		.waitFor();
	await accessibleEverywhere("a report");
	await shot("report");
	assert.equal(await page.evaluate(() => window.hacked), undefined);
});

await step("it is told how it went over time, and what can be improved", async () => {
	await page.getByRole("tab", { name: "trend" }).click();
	await page.getByRole("tabpanel").waitFor();
	await accessibleEverywhere("the trend");
	await page.getByRole("tab", { name: "improve" }).click();
	await page.getByRole("tabpanel").waitFor();
	await accessibleEverywhere("improving");
	await shot("improve");
});

/** Instructions to which the scripted model of the tests gives this answer. */
const says = (answer) => `[[id=web-improve says=${Buffer.from(answer).toString("base64")}]]`;
const rewritten = `def deep(a):\n    """What is above 7 as it is, all else as words."""\n    return a if a > 7 else str(a)\n`;

async function copyOf(file) {
	const id = new URL(page.url()).searchParams.get("id");
	const about = `${base}/projects/${id}`;
	const { text } = await (await fetch(`${about}/file?path=${encodeURIComponent(file)}`)).json();
	return { text, patch: await (await fetch(`${about}/patch`)).text() };
}

await step("a file is improved, its changes are shown, applied to the copy and taken back", async () => {
	const id = new URL(page.url()).searchParams.get("id");
	const { items } = await (await fetch(`${base}/projects/${id}/files`)).json();
	const file = items.map((one) => one.path).find((path) => path.endsWith("app.py"));
	const before = await copyOf(file);
	const form = page.getByRole("form", { name: "improve a file" });
	await form.getByLabel("file").fill(file);
	await form.getByLabel(/what to do/).fill(says(`\`\`\`python\n${rewritten}\`\`\`\n`));
	await form.getByRole("button", { name: "Propose" }).click();
	const changes = page.getByRole("region", { name: "changes" });
	await changes.waitFor();
	// Both sides of what changes, beside each other and then in one column.
	await changes.getByRole("cell", { name: /^removed .*return eval\(str\(a\)\)/ }).waitFor();
	await changes.getByRole("cell", { name: /^added .*return a if a > 7/ }).waitFor();
	await accessibleEverywhere("changes side by side");
	await shot("diff");
	await changes.getByRole("button", { name: "In one column" }).click();
	await changes.getByRole("row", { name: /added.*return a if a > 7/ }).waitFor();
	await accessibleEverywhere("changes in one column");
	assert.deepEqual(await copyOf(file), before, "nothing was written before it was told to");

	await page.getByRole("button", { name: "Apply to the copy" }).click();
	await page.getByRole("button", { name: "Revert" }).waitFor();
	await page.getByText("applied", { exact: true }).first().waitFor();
	const applied = await copyOf(file);
	assert.equal(applied.text, rewritten);
	assert.match(applied.patch, /\+ {4}return a if a > 7/);
	await shot("applied");

	await page.getByRole("button", { name: "Revert" }).click();
	await page.getByText("The copy does not have this change any more.").waitFor();
	await counted(page.getByRole("button", { name: "Revert" }), 0);
	assert.deepEqual(await copyOf(file), before);
});

await step(
	"a public name goes only where it is named, and a name that the file does not offer is refused",
	async () => {
		const form = page.getByRole("form", { name: "improve a file" });
		const names = form.getByLabel(/public names that the rewrite may take out/);
		await form.getByText(/names that may go/).click();
		await names.fill("deep, nowhere");
		await form.getByLabel("rewrites to choose from").selectOption("2");
		await form.getByLabel(/own tests/).fill("python3 -c 'pass");
		await form.getByRole("button", { name: "Propose" }).click();
		await page
			.getByRole("alert")
			.getByText(/quotation mark/)
			.waitFor();
		await form.getByLabel(/own tests/).fill("");
		await form.getByRole("button", { name: "Propose" }).click();
		await page
			.getByRole("alert")
			.getByText(/nowhere/)
			.waitFor();
		await accessibleEverywhere("a name that is refused");
		await shot("refused-name");

		const without = "```python\nimport os\n\nprint(os.name)\n```\n";
		await names.fill("deep");
		await form.getByLabel(/what to do/).fill(says(without).replace("web-improve", "web-may-remove"));
		const asked = page.waitForRequest((request) => request.method() === "POST" && request.url().includes("/improve"));
		await form.getByRole("button", { name: "Propose" }).click();
		const { may_remove, candidates, tests } = (await asked).postDataJSON();
		assert.deepEqual([may_remove, candidates, tests], [["deep"], 2, undefined]);
		const changes = page.getByRole("region", { name: "changes" });
		await changes.getByRole("cell", { name: /^removed .*def deep\(a\)/ }).waitFor();
		await page.getByText("proposed", { exact: true }).first().waitFor();
		await counted(page.getByRole("region", { name: "Improve a file" }).getByRole("alert"), 0);
		await shot("name-taken-out");

		// What is not named stays: the same answer is no rewrite then.
		await names.fill("");
		await form.getByLabel(/what to do/).fill(says(without).replace("web-improve", "web-keep"));
		await form.getByRole("button", { name: "Propose" }).click();
		await page.getByText("the rewrite loses public names: deep").waitFor();
	},
);

await step("linters that an analysis may use are listed with what is there", async () => {
	await page.goto(`${base}/ui/projects/`);
	const linters = page.getByRole("region", { name: "Linters" });
	const { items } = await (await fetch(`${base}/projects/tools`)).json();
	await linters.getByRole("listitem").first().waitFor();
	await counted(linters.getByRole("listitem"), items.length);
	for (const { name, status } of items)
		await linters
			.getByRole("listitem")
			.filter({ has: page.getByText(name, { exact: true }) })
			.getByText(status === "path" ? "on this machine" : status, { exact: true })
			.waitFor();
	await accessibleEverywhere("linters");
	await shot("linters");
});

await step("another namespace has projects of its own", async () => {
	await page.goto(`${base}/ui/projects/`);
	const namespace = page.getByLabel("namespace", { exact: true });
	await namespace.fill("elsewhere");
	await namespace.press("Enter");
	await page.getByText("No projects.").waitFor();
	const archive = { name: "theirs.zip", mimeType: "application/zip", buffer: zip(files) };
	await page.locator("input[type=file]").setInputFiles(archive);
	await page.getByRole("button", { name: "Import", exact: true }).click();
	await page.waitForURL((url) => url.searchParams.has("id"));
	await page.getByText("imported", { exact: true }).first().waitFor();
	const { searchParams } = new URL(page.url());
	const { items } = await (await fetch(`${base}/projects?namespace=elsewhere`)).json();
	assert.deepEqual(
		[searchParams.get("namespace"), items.map((one) => one.project_id)],
		["elsewhere", [searchParams.get("id")]],
	);
});

// A name that the file does not offer is refused by the server, which the browser tells, too.
await step("nothing went wrong unseen", () =>
	assert.deepEqual(
		complaints.filter((text) => !/4\d\d .*\/projects\/[^/]+\/improve/.test(text)),
		[],
	),
);
await browser.close();
