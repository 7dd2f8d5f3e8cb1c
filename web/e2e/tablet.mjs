// A tablet: no mouse and no keys, a finger on a narrow screen. `node e2e/tablet.mjs BASE_URL SHOTS_FOLDER`
import assert from "node:assert/strict";
import { launch, walker } from "./browser.mjs";

const [base, shots] = process.argv.slice(2);
const browser = await launch();
const tablet = { viewport: { width: 768, height: 1024 }, hasTouch: true };
const { page, complaints, shot, agent, palette, step, counted, accessible, imported } = await walker(
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

await step("an agent is connected by finger: from handle to handle, by taps and by a drag", async () => {
	const edges = page.locator(".react-flow__edge");
	// The note makes the canvas tall: what is tapped lies above the settings, which a tap on a node brings up.
	await imported({
		format: "riverrun.canvas",
		version: 1,
		name: "By finger",
		namespace: "default",
		nodes: [
			{ id: "t", kind: "tool", x: -250, y: 0, data: { tool: "clock" } },
			{ id: "a", kind: "agent", x: 0, y: 0, data: { agent: "react", task: "Wait." } },
			{ id: "n", kind: "note", x: 0, y: 700, data: { text: "" } },
		],
		edges: [],
	});
	const from = page.getByRole("article", { name: "tool clock" }).locator(".react-flow__handle.source");
	const to = agent("react").locator(".react-flow__handle.target");
	// What can't be connected says why, by taps as well.
	await agent("react").locator(".react-flow__handle.source").tap();
	await from.tap();
	await page.getByText("not connected: only an agent takes an input").waitFor();
	await from.tap();
	await to.tap();
	await counted(edges, 1);
	await page.getByRole("button", { name: "undo" }).tap();
	await counted(edges, 0);
	await draggedByFinger(from, to);
	await counted(edges, 1);
	await shot("connected-by-finger");
});

/** A finger goes down on one, moves to the other in small steps, and is lifted there. */
async function draggedByFinger(from, to) {
	const middle = async (at) => {
		const { x, y, width, height } = await at.boundingBox();
		return { x: x + width / 2, y: y + height / 2 };
	};
	const [start, end] = [await middle(from), await middle(to)];
	// As a page hears of it: to the end of its touch, all goes to where it began.
	const touch = (type, at) =>
		from.evaluate(
			(target, [type, { x, y }]) => {
				const finger = new Touch({ identifier: 1, target, clientX: x, clientY: y });
				const touches = type === "touchend" ? [] : [finger];
				const told = { touches, targetTouches: touches, changedTouches: [finger], bubbles: true, cancelable: true };
				target.dispatchEvent(new TouchEvent(type, told));
			},
			[type, at],
		);
	await touch("touchstart", start);
	for (let moved = 1; moved <= 10; moved++) {
		const part = moved / 10;
		await touch("touchmove", { x: start.x + (end.x - start.x) * part, y: start.y + (end.y - start.y) * part });
	}
	await touch("touchend", end);
}

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
