// The projects page from a zip archive to a report. `node e2e/projects.mjs BASE_URL SHOTS_FOLDER`
import assert from "node:assert/strict";
import { launch, walker } from "./browser.mjs";
import { zip } from "./zip.mjs";

const [base, shots] = process.argv.slice(2);
const ANALYZES_MS = 120_000;
const browser = await launch();
const { page, complaints, shot, step, accessible } = await walker(browser, base, shots);

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
	await page
		.getByText(/app\.py/)
		.first()
		.waitFor();
	await accessible("a report");
	await shot("report");
	assert.equal(await page.evaluate(() => window.hacked), undefined);
});

await step("it is told how it went over time, and what can be improved", async () => {
	await page.getByRole("tab", { name: "trend" }).click();
	await page.getByRole("tabpanel").waitFor();
	await accessible("the trend");
	await page.getByRole("tab", { name: "improve" }).click();
	await page.getByRole("tabpanel").waitFor();
	await accessible("improving");
	await shot("improve");
});

await step("nothing went wrong unseen", () => assert.deepEqual(complaints, []));
await browser.close();
