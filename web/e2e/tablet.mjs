// A tablet: no mouse and no keys, a finger on a narrow screen. `node e2e/tablet.mjs BASE_URL SHOTS_FOLDER`
import assert from "node:assert/strict";
import { launch, walker } from "./browser.mjs";

const [base, shots] = process.argv.slice(2);
const browser = await launch();
const tablet = { viewport: { width: 768, height: 1024 }, hasTouch: true };
const { page, complaints, shot, agent, palette, step, counted, accessible } = await walker(
	browser,
	base,
	shots,
	tablet,
);
const settings = page.getByRole("complementary", { name: "settings" });

await step("an agent and its tool are put on the canvas, connected and run by finger", async () => {
	await page.goto(base);
	await palette("react").tap();
	await palette("calculator").tap();
	await page.getByRole("article", { name: "tool calculator" }).waitFor();
	await agent("react").getByText("react", { exact: true }).first().tap();
	await settings.getByLabel("connect an input").selectOption({ label: "calculator" });
	await counted(page.locator(".react-flow__edge"), 1);
	await accessible("a canvas on a tablet");
	await shot("settings");
	await settings.getByRole("button", { name: "close the settings" }).tap();
	await settings.waitFor({ state: "detached" });
	await agent("react").getByLabel("task").fill("[[steps=1 id=web-tablet]] Count.");
	await agent("react").getByRole("button", { name: "run", exact: true }).tap();
	await agent("react").getByText("succeeded", { exact: true }).waitFor();
	await agent("react")
		.getByText(/^calculator\(/)
		.first()
		.tap();
	await agent("react").getByRole("definition").first().waitFor();
	await shot("run");
});

await step("the palette folds away, and every page is reached and as wide as the screen", async () => {
	await page.getByRole("button", { name: "hide the palette" }).tap();
	await counted(palette("react"), 0);
	for (const name of ["Runs", "Collections", "Fine-tuning", "Projects", "System", "Canvas"]) {
		const link = page.getByRole("navigation", { name: "Pages" }).getByRole("link", { name, exact: true });
		await link.tap();
		await page.locator(`nav a[aria-current="page"]`).filter({ hasText: name }).waitFor();
		const beside = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
		assert.ok(beside <= 0, `${name} is ${beside} pixels too wide`);
	}
});

await step("nothing went wrong unseen", () => assert.deepEqual(complaints, []));
await browser.close();
