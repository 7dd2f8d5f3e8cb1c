// A server that wants tokens: signing in, what a token may do, signing out. `node e2e/tokens.mjs BASE_URL SHOTS_FOLDER TOKEN READER`
// TOKEN may run, READER only read.
import assert from "node:assert/strict";
import { launch, walker } from "./browser.mjs";

const [base, shots, token, reader] = process.argv.slice(2);
const browser = await launch();
const { page, shot, agent, palette, step, counted, accessible, imported } = await walker(browser, base, shots);
const dialog = page.getByRole("dialog", { name: "Sign in" });

async function signIn(with_) {
	await dialog.getByLabel("token").fill(with_);
	await dialog.getByRole("button", { name: "Sign in" }).click();
}

const canvas = {
	format: "riverrun.canvas",
	version: 1,
	name: "Signed in",
	namespace: "default",
	nodes: [{ id: "a", kind: "agent", x: 0, y: 0, data: { agent: "react", task: "[[steps=0 id=web-token]] Say it." } }],
	edges: [],
};

await step("nothing is shown before a token is, and a wrong one is said to be wrong", async () => {
	await page.goto(base);
	await dialog.waitFor();
	await accessible("signing in");
	// That a token is wanted is asked once, not also said behind the question.
	await counted(page.locator('aside [role="alert"]'), 0);
	await shot("sign-in");
	await signIn("rr_wrong");
	await dialog.getByText("The server does not know this token.").waitFor();
	await counted(palette("react"), 0);
});

await step("with a token everything comes by itself, streams too, and it stays over a reload", async () => {
	await signIn(token);
	await dialog.waitFor({ state: "detached" });
	await palette("react").waitFor();
	await imported(canvas);
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

await step(
	"who signs out is asked again, and a token that may only read is refused a run with the reason",
	async () => {
		await page.getByRole("button", { name: /^Sign out/ }).click();
		await dialog.waitFor();
		await signIn(reader);
		await palette("react").waitFor();
		await agent("react").getByRole("button", { name: "run", exact: true }).click();
		await agent("react").getByRole("alert").waitFor();
		await shot("refused");
	},
);

await browser.close();
