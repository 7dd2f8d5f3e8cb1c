// A server that wants tokens: signing in, what a token may do, signing out, and that nothing of whoever leaves is left to the next
// one. `node e2e/tokens.mjs BASE_URL SHOTS_FOLDER TOKEN READER`; TOKEN may run, READER only read.
import assert from "node:assert/strict";
import { launch, walker } from "./browser.mjs";

const [base, shots, token, reader] = process.argv.slice(2);
const browser = await launch();
const { page, shot, agent, palette, step, counted, accessible, accessibleEverywhere, imported } = await walker(
	browser,
	base,
	shots,
);
const dialog = page.getByRole("dialog", { name: "Sign in" });
const question = page.getByRole("dialog", { name: "Sign out?" });
const out = (where = page) => where.getByRole("button", { name: /^Sign out/ });

async function signIn(with_, where = page) {
	const asks = where.getByRole("dialog", { name: "Sign in" });
	await asks.getByLabel("token").fill(with_);
	await asks.getByRole("button", { name: "Sign in" }).click();
	await where
		.getByRole("complementary", { name: "palette" })
		.getByRole("button", { name: "react", exact: true })
		.waitFor();
}

const WORDS = "Say it, and to nobody else.";
const canvas = (name) => ({
	format: "riverrun.canvas",
	version: 1,
	name,
	namespace: "default",
	nodes: [{ id: "a", kind: "agent", x: 0, y: 0, data: { agent: "react", task: `[[steps=0 id=web-token]] ${WORDS}` } }],
	edges: [],
});

/** Neither the page nor the browser's storage has anything of the canvas. */
async function nothingIsLeft(where = page) {
	await where.getByRole("dialog", { name: "Sign in" }).waitFor();
	await counted(where.getByRole("application", { name: "canvas" }), 0);
	await counted(where.getByText(WORDS), 0);
	const kept = await where.evaluate(() => JSON.stringify([{ ...localStorage }, { ...sessionStorage }]));
	assert.ok(!kept.includes(WORDS), kept);
}

await step("nothing is shown before a token is, and a wrong one is said to be wrong", async () => {
	await page.goto(base);
	await dialog.waitFor();
	await accessible("signing in");
	await counted(page.locator("main *"), 0);
	await shot("sign-in");
	await dialog.getByLabel("token").fill("rr_wrong");
	await dialog.getByRole("button", { name: "Sign in" }).click();
	await dialog.getByText("The server does not know this token.").waitFor();
	await counted(palette("react"), 0);
});

await step("with a token everything comes by itself, streams too, and it stays over a reload", async () => {
	await signIn(token);
	await dialog.waitFor({ state: "detached" });
	await imported(canvas("Signed in"));
	await agent("react").getByRole("button", { name: "run", exact: true }).click();
	await agent("react").getByText("succeeded").waitFor();
	await page.reload();
	await palette("react").waitFor();
	await agent("react").getByText("succeeded").waitFor();
});

await step("no script can read the token", async () => {
	const kept = await page.evaluate(() => JSON.stringify([document.cookie, { ...localStorage }, { ...sessionStorage }]));
	assert.ok(!kept.includes(token));
});

await step("who signs out is asked about what the server has not, and may stay", async () => {
	await out().click();
	await question.getByRole("listitem").filter({ hasText: "Signed in" }).waitFor();
	await accessibleEverywhere("what would be lost by signing out");
	await shot("sign-out");
	await question.getByRole("button", { name: "Stay signed in" }).click();
	await question.waitFor({ state: "detached" });
	await agent("react").getByText("succeeded").waitFor();
});

await step("what is saved on the way out is on the server, and no more in the browser", async () => {
	await out().click();
	await question.getByRole("button", { name: "Save and sign out" }).click();
	await nothingIsLeft();
	await shot("signed-out");
	// Nor does it come back by going back.
	await page.reload();
	await nothingIsLeft();
});

await step("the next one meets an empty canvas, and what the server shows them", async () => {
	await signIn(reader);
	await counted(page.locator(".react-flow__node"), 0);
	await page.keyboard.press("Control+o");
	const list = page.getByRole("dialog", { name: "Open a canvas" });
	await list.getByRole("button", { name: /signed-in/ }).waitFor();
	await counted(list.getByRole("list", { name: "canvases of other tabs" }), 0);
	await list.getByRole("button", { name: /signed-in/ }).click();
	await agent("react").waitFor();
});

await step("a token that may only read is refused a run with the reason", async () => {
	await agent("react").getByRole("button", { name: "run", exact: true }).click();
	await agent("react").getByRole("alert").waitFor();
	await shot("refused");
});

await step("who has nothing that the server has not is not asked", async () => {
	await out().click();
	await nothingIsLeft();
	await counted(question, 0);
});

await step("every tab is left at once, and what is not saved may be left behind", async () => {
	await signIn(token);
	await imported(canvas("Left behind"));
	// Another tab begins with what the browser keeps, which it does a moment after a change.
	await page.waitForFunction(() => JSON.stringify({ ...localStorage }).includes("Left behind"));
	const other = await page.context().newPage();
	await other.goto(base);
	await other.getByLabel("name of the canvas").waitFor();
	await other.getByRole("article", { name: "agent react" }).waitFor();
	await out(other).click();
	await other.getByRole("button", { name: "Discard them" }).click();
	await nothingIsLeft(other);
	await nothingIsLeft();
	await other.close();
});

await step("a token that runs out hides what is there, and only the same one finds it again", async () => {
	const cookies = page.context();
	await signIn(token);
	await imported(canvas("Of the first"));
	const expire = async () => {
		await cookies.clearCookies();
		await page.getByRole("button", { name: "search", exact: true }).waitFor();
		await dialog.waitFor();
		// It is in front of everything, and nothing shines through.
		const ground = await page.evaluate(() => {
			const { backgroundColor, zIndex } = getComputedStyle(document.elementFromPoint(5, 5));
			return [backgroundColor, Number(zIndex)];
		});
		assert.match(ground[0], /^rgb\(/);
		assert.ok(ground[1] >= 60);
	};
	await expire();
	await shot("run-out");
	await signIn(token);
	await agent("react").waitFor();
	await expire();
	await signIn(reader);
	await counted(page.locator(".react-flow__node"), 0);
	await out().click();
	await dialog.waitFor();
	await signIn(token);
	await agent("react").waitFor();
	assert.equal(await page.getByLabel("name of the canvas").inputValue(), "Of the first");
});

await browser.close();
