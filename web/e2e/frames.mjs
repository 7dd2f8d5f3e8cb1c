// Frame times of the canvas under 500 nodes, beside a bare React Flow page with as many; of a run of 5,000 steps; and of
// several runs at once. `node e2e/frames.mjs BASE_URL [RESULT.json]`, against a running `riverrun serve`.
// Frames are those that the page is asked to draw (requestAnimationFrame), while a mouse pans and a wheel zooms. The browser
// draws by software, so that these are numbers of the processor; "own" is what the page's thread was busy with for a frame.
import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import { cpus } from "node:os";
import { fileURLToPath } from "node:url";
import { launch } from "./browser.mjs";
import { large } from "./graph.mjs";

const [base, result] = process.argv.slice(2);
const NODES = 500;
const STEPS = 5_000;
const RUNS_AT_ONCE = 8;
const MOVES = 150;
/** A frame that comes within this is one of sixty a second. */
const ON_TIME_MS = 17.5;

const browser = await launch();
const rows = [];
const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

/** What the page drew, and what that cost it, while `work` went on. */
async function measured(page, name, work) {
	const devtools = await page.context().newCDPSession(page);
	await devtools.send("Performance.enable");
	const busy = async () => {
		const { metrics } = await devtools.send("Performance.getMetrics");
		const of = (key) => metrics.find((one) => one.name === key)?.value ?? 0;
		return { task: of("TaskDuration") * 1000, script: of("ScriptDuration") * 1000 };
	};
	await page.evaluate(() => {
		// Each measurement counts its own: one that has ended may be asked for one more frame.
		const frames = [];
		const tick = (at) => {
			if (window.frames_ !== frames) return;
			frames.push(at);
			requestAnimationFrame(tick);
		};
		window.frames_ = frames;
		requestAnimationFrame(tick);
	});
	const before = await busy();
	await work();
	const after = await busy();
	const at = await page.evaluate(() => {
		const frames = window.frames_;
		window.frames_ = undefined;
		return frames;
	});
	await devtools.detach();
	const gaps = at.slice(1).map((time, n) => time - at[n]);
	gaps.sort((a, b) => a - b);
	const quantile = (q) => gaps[Math.min(gaps.length - 1, Math.floor(gaps.length * q))];
	const row = {
		name,
		frames: gaps.length,
		per_s: (1000 * gaps.length) / (at.at(-1) - at[0]),
		on_time: gaps.filter((gap) => gap <= ON_TIME_MS).length / gaps.length,
		p50_ms: quantile(0.5),
		p95_ms: quantile(0.95),
		longest_ms: gaps.at(-1),
		own_ms: (after.task - before.task) / gaps.length,
		script_ms: (after.script - before.script) / gaps.length,
	};
	rows.push(row);
	const { per_s, on_time, p50_ms, p95_ms, longest_ms, own_ms, script_ms } = row;
	console.log(
		`${name.padEnd(46)} ${per_s.toFixed(0).padStart(3)}/s  on time ${(on_time * 100).toFixed(0).padStart(3)} %  ` +
			`p50 ${p50_ms.toFixed(1)}  p95 ${p95_ms.toFixed(1)}  longest ${longest_ms.toFixed(0)} ms  ` +
			`own ${own_ms.toFixed(1)} ms, of it script ${script_ms.toFixed(1)}`,
	);
}

/** A place where a drag moves the canvas and no node. */
function emptyPlace(page) {
	return page.evaluate(() => {
		const pane = document.querySelector(".react-flow__pane").getBoundingClientRect();
		for (let ring = 0; ring < 40; ring++)
			for (let turn = 0; turn < 24; turn++) {
				const x = pane.x + pane.width / 2 + Math.cos(turn) * ring * 8;
				const y = pane.y + pane.height / 2 + Math.sin(turn) * ring * 8;
				if (document.elementFromPoint(x, y)?.classList.contains("react-flow__pane")) return { x, y };
			}
		throw new Error("nodes cover everything");
	});
}

async function pan(page) {
	const { x, y } = await emptyPlace(page);
	await page.mouse.move(x, y);
	await page.mouse.down();
	for (let n = 1; n <= MOVES; n++) {
		await page.mouse.move(x + 160 * Math.sin(n / 12), y + 90 * Math.sin(n / 7));
		await sleep(8);
	}
	await page.mouse.up();
}

async function zoom(page) {
	const { x, y } = await emptyPlace(page);
	await page.mouse.move(x, y);
	for (let n = 0; n < MOVES / 2; n++) {
		await page.mouse.wheel(0, n % 30 < 15 ? -40 : 40);
		await sleep(16);
	}
}

async function fresh() {
	const page = await browser.newPage({ viewport: { width: 1280, height: 800 } });
	page.setDefaultTimeout(60_000);
	return page;
}

/** Whole: all nodes on the screen. Near: a few of them, as one works with them. */
async function panAndZoom(page, name) {
	await measured(page, `${name}, whole: first pan`, () => pan(page));
	await measured(page, `${name}, whole: pan`, () => pan(page));
	await measured(page, `${name}, whole: zoom`, () => zoom(page));
	const { x, y } = await emptyPlace(page);
	await page.mouse.move(x, y);
	for (let n = 0; n < 12; n++) await page.mouse.wheel(0, -120);
	await sleep(1_000);
	await measured(page, `${name}, near: pan`, () => pan(page));
}

const graph = large(NODES);

async function ours() {
	const page = await fresh();
	await page.goto(base);
	await page.locator(".react-flow__pane").waitFor();
	const buffer = Buffer.from(JSON.stringify(graph));
	const began = Date.now();
	await page.getByLabel("canvas file").setInputFiles({ name: "large.json", mimeType: "application/json", buffer });
	await page.locator(".react-flow__node").first().waitFor();
	await page.getByRole("button", { name: "Fit View" }).click();
	await page.waitForFunction((count) => document.querySelectorAll(".react-flow__node").length === count, NODES);
	console.log(`${NODES} nodes are imported and drawn in ${Date.now() - began} ms`);
	await sleep(1_000);
	await panAndZoom(page, "canvas");
	await page.close();
}

async function peer(name, visibleOnly) {
	const { build } = await import("vite");
	const folder = fileURLToPath(new URL(".", import.meta.url));
	const { output } = await build({
		root: folder,
		configFile: false,
		logLevel: "error",
		define: { "process.env.NODE_ENV": '"production"' },
		build: { write: false, lib: { entry: "frames.peer.mjs", formats: ["iife"], name: "peer", cssFileName: "peer" } },
	}).then((made) => (Array.isArray(made) ? made[0] : made));
	const script = output.find((one) => one.type === "chunk").code;
	const style = output.find((one) => one.type === "asset")?.source ?? "";
	const page = await fresh();
	await page.setContent("<!doctype html><title>peer</title>");
	await page.addStyleTag({ content: String(style) });
	await page.evaluate((given) => Object.assign(window, { GRAPH: given }), { ...graph, visibleOnly });
	const began = Date.now();
	await page.addScriptTag({ content: script });
	await page.waitForFunction((count) => document.querySelectorAll(".react-flow__node").length === count, NODES);
	console.log(`${name}: ${NODES} nodes are drawn in ${Date.now() - began} ms`);
	await sleep(1_000);
	await panAndZoom(page, name);
	await page.close();
}

function step(run, seq) {
	const kind = ["thought", "tool_call", "tool_result"][seq % 3];
	const tool = { name: "calculator", call_id: `c${Math.floor(seq / 3)}`, arguments: { expression: `${seq} + ${run}` } };
	return {
		type: "step",
		step: {
			seq,
			kind,
			agent: "react",
			at: new Date().toISOString(),
			text: kind === "thought" ? `thought ${seq}: what comes next?` : null,
			tool: kind === "thought" ? null : tool,
		},
	};
}

/** Runs whose steps come from here, as fast as they are sent: the server's runs end long before so many. */
async function streamed(page, steps, everyMs, batch) {
	const ended = [];
	await page.route(/\/runs\/run_frames\d/, (route) => route.fulfill({ status: 404, json: {} }));
	await page.routeWebSocket(/\/ws\/runs\/run_frames\d/, (socket) => {
		const run = Number(/run_frames(\d)/.exec(socket.url())[1]);
		const send = (message) => socket.send(JSON.stringify(message));
		ended.push(
			(async () => {
				send({ type: "start", run_id: `run_frames${run}`, agent: "react" });
				for (let seq = 1; seq <= steps; seq++) {
					send(step(run, seq));
					if (seq % batch === 0) {
						for (const word of ["so ", "it ", "goes "]) send({ type: "token", seq: seq + 1, text: word });
						await sleep(everyMs);
					}
				}
			})(),
		);
	});
	return () => Promise.all(ended);
}

async function longRun() {
	const page = await fresh();
	const ended = await streamed(page, STEPS, 20, 25);
	await page.goto(`${base}/ui/runs/?id=run_frames0`);
	await measured(page, `run of ${STEPS} steps: they come`, async () => {
		await page.getByText(`${STEPS.toLocaleString("en")} steps`).waitFor();
		await ended();
	});
	const list = page.getByRole("list", { name: "steps" });
	const box = await list.boundingBox();
	await page.mouse.move(box.x + 200, box.y + 200);
	await measured(page, `run of ${STEPS} steps: scrolled`, async () => {
		for (let n = 0; n < MOVES; n++) {
			await page.mouse.wheel(0, 900);
			await sleep(16);
		}
	});
	const drawn = await list.getByRole("listitem").count();
	console.log(`${drawn} of ${STEPS} steps are in the page`);
	assert.ok(drawn < 200, "only what is looked at is in the page");
	const began = Date.now();
	await list
		.getByRole("listitem")
		.nth(Math.floor(drawn / 2))
		.getByRole("button")
		.first()
		.click();
	await list.locator("dl").waitFor();
	console.log(`a step opens in ${Date.now() - began} ms`);
	await page.close();
}

async function several() {
	const page = await fresh();
	const canvas = large(2 * RUNS_AT_ONCE);
	const names = canvas.nodes.filter((node) => node.kind === "agent").map((node) => node.id);
	const runs = Object.fromEntries(names.map((id, n) => [id, `run_frames${n}`]));
	const ended = await streamed(page, 600, 20, 5);
	const saved = JSON.stringify({ canvas: JSON.stringify(canvas), runs, chains: {} });
	await page.addInitScript((text) => localStorage.setItem("riverrun.canvas", text), saved);
	await page.goto(base);
	await page.locator(".react-flow__node").first().waitFor();
	await measured(page, `${RUNS_AT_ONCE} runs at once on the canvas, panned`, async () => {
		await pan(page);
		await ended();
	});
	await page.close();
}

await ours();
await peer("React Flow as it comes", false);
await peer("React Flow, only what is visible", true);
await longRun();
await several();
await browser.close();
if (result) {
	const [{ model }] = cpus();
	writeFileSync(result, `${JSON.stringify({ cpu: model, cores: cpus().length, nodes: NODES, rows }, null, 2)}\n`);
}
