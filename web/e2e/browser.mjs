// What every walk and measurement shares: the browser, the steps with their screenshots, the look for what is not accessible.
import assert from "node:assert/strict";
import { existsSync, mkdirSync, readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";
import { chromium } from "playwright-core";

const BROWSERS = ["/usr/bin/chromium", "/usr/bin/chromium-headless-shell", "/usr/bin/google-chrome"];
const ARGUMENTS = [
	"--no-sandbox",
	"--disable-gpu",
	"--disable-quic",
	"--no-first-run",
	"--disable-background-networking",
];
const PATIENCE_MS = 30_000;
/** Windows that every page must be usable in: of a small desk and of a tablet. */
const WINDOWS = [
	{ width: 1280, height: 800 },
	{ width: 768, height: 1024 },
];
const THEMES = ["light", "dark"];
/** WCAG 2.2, levels A and AA; there are no rules for what 2.2 has new at level A. */
const WCAG = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"];

/** Chromium without a window; it draws by software, so that each machine draws alike. */
export function launch() {
	return chromium.launch({ executablePath: BROWSERS.find((path) => existsSync(path)), args: ARGUMENTS });
}

/** A page of its own to walk on, and what a walk does over and over. */
export async function walker(browser, base, shots, options = {}) {
	mkdirSync(shots, { recursive: true });
	const context = await browser.newContext({
		viewport: WINDOWS[0],
		acceptDownloads: true,
		...options,
	});
	const page = await context.newPage();
	page.setDefaultTimeout(PATIENCE_MS);
	const complaints = [];
	page.on(
		"console",
		(message) => message.type() === "error" && complaints.push(`${message.text()} ${message.location().url}`),
	);
	page.on("pageerror", (error) => complaints.push(String(error)));
	const outside = [];
	let imports = 0;
	page.on("request", (request) => {
		const url = new URL(request.url());
		if (url.origin !== new URL(base).origin && !["data:", "blob:"].includes(url.protocol)) outside.push(request.url());
	});
	const shot = (name) => page.screenshot({ path: join(shots, `${name}.png`) });
	const axe = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");

	async function accessible(name) {
		// Run beside the page's own scripts, which its policy lets nothing join.
		await page.evaluate(axe);
		const violations = await page.evaluate(async (tags) => {
			const { violations } = await window.axe.run(document, { runOnly: tags });
			// What lies on the canvas is as large as whoever looks has zoomed it, and may lie below another node.
			const isZoomed = (target) => document.querySelector(target)?.closest(".react-flow__viewport");
			return violations.map(({ id, nodes }) => ({
				id,
				targets: nodes.map(({ target }) => target.join(" ")).filter((one) => id !== "target-size" || !isZoomed(one)),
			}));
		}, WCAG);
		const found = violations
			.filter(({ targets }) => targets.length > 0)
			.map(({ id, targets }) => `${id}: ${targets.slice(0, 3).join(", ")}`);
		assert.deepEqual(found, [], `${name} has violations`);
	}

	return {
		page,
		complaints,
		outside,
		shot,
		agent: (name) => page.getByRole("article", { name: `agent ${name}` }),
		palette: (name) => page.getByRole("complementary", { name: "palette" }).getByRole("button", { name, exact: true }),

		/** One step of the walk: what goes wrong in it is told with a picture, and the walk goes on. */
		async step(name, walk) {
			try {
				await walk();
				console.log(`ok ${name}`);
			} catch (error) {
				await shot(`failed-${name.replaceAll(" ", "-")}`);
				console.error(`not ok ${name}\n${error.stack}`);
				process.exitCode = 1;
			}
		},

		accessible,

		/** In every window, light and dark; and nothing stands beside what is seen. */
		async accessibleEverywhere(name) {
			const theme = await page.evaluate(() => document.documentElement.dataset.theme);
			const themed = (wanted) =>
				page.evaluate((one) => {
					document.documentElement.dataset.theme = one;
				}, wanted);
			const wrong = [];
			for (const window of WINDOWS) {
				await page.setViewportSize(window);
				const beside = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
				const main = await page.evaluate(() => {
					const found = document.querySelector("main");
					return found ? found.scrollWidth - found.clientWidth : 0;
				});
				if (Math.max(beside, main) > 0)
					wrong.push(`${name} is ${Math.max(beside, main)} pixels too wide at ${window.width}`);
				for (const wanted of THEMES) {
					await themed(wanted);
					await accessible(`${name}, ${wanted}, ${window.width}`).catch((error) => wrong.push(error.message));
				}
			}
			// As it is last: dark, on a tablet.
			await shot(`tablet-${name.replaceAll(" ", "-")}`);
			await page.setViewportSize(WINDOWS[0]);
			await themed(theme);
			assert.deepEqual(wrong, []);
		},

		/**
		 * Waits until so many elements that the locator finds are in the page, or a number that `wanted` says yes to: an edge, for
		 * one, is drawn only when the nodes at its ends are measured.
		 */
		async counted(locator, wanted) {
			const enough = typeof wanted === "function" ? wanted : (count) => count === wanted;
			for (const until = Date.now() + PATIENCE_MS; ; await page.waitForTimeout(50)) {
				const count = await locator.count();
				if (enough(count)) return;
				if (Date.now() > until) assert.fail(`${locator} finds ${count}, not ${wanted}`);
			}
		},

		/** Drags a connection from the output of one node to the input of another. */
		async link(from, to) {
			const source = await from.locator(".react-flow__handle.source").boundingBox();
			const target = await to.locator(".react-flow__handle.target").boundingBox();
			await page.mouse.move(source.x + source.width / 2, source.y + source.height / 2);
			await page.mouse.down();
			await page.mouse.move(target.x + target.width / 2, target.y + target.height / 2, { steps: 8 });
			await page.mouse.up();
		},

		/** Imports a canvas file that holds these words, or this object as JSON, until the page says that it has or refuses it. */
		async imported(content) {
			const text = typeof content === "string" ? content : JSON.stringify(content);
			imports += 1;
			const name = `canvas-${imports}.json`;
			const file = { name, mimeType: "application/json", buffer: Buffer.from(text) };
			await page.getByLabel("canvas file").setInputFiles(file);
			await page.getByText(new RegExp(`${name} is (not )?imported`)).waitFor();
		},
	};
}
