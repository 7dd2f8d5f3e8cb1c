import { afterEach, expect, test, vi } from "vitest";
import { MemoryStore } from "./memory-store";
import { useCanvas } from "./store";

afterEach(() => vi.unstubAllGlobals());

test("given a fork that the server refuses, then its node says why and keeps its run", async () => {
	const refused = { status: 422, code: "invalid", title: "Invalid", detail: "a call is under way", hint: "at_seq 1" };
	vi.stubGlobal("fetch", async () => Response.json(refused, { status: 422 }));
	useCanvas.getState().adopt("node", "run_1");
	await useCanvas.getState().fork("node", 2);
	expect(useCanvas.getState().problems.node).toBe("a call is under way. at_seq 1");
	expect(useCanvas.getState().runOf.node).toBe("run_1");
});

test("given a kept canvas that can't be read back, then its text is set aside and the page says so", async () => {
	const kept = JSON.stringify({ canvas: "{}", runs: {}, chains: {} });
	const browser = new MemoryStore([["riverrun.canvas", kept]]);
	vi.stubGlobal("localStorage", browser);
	vi.stubGlobal("sessionStorage", new MemoryStore());
	useCanvas.getState().load();
	expect([browser.getItem("riverrun.canvas.set-aside"), browser.getItem("riverrun.canvas")]).toEqual([kept, null]);
	expect(useCanvas.getState().notice).toContain("can't be read");
	expect(useCanvas.getState().history.present.nodes).toEqual([]);
});

test("given more connections than a canvas has, when they are pasted, then nothing is pasted and the page says why", () => {
	const edges = Array.from({ length: 8_001 }, (_, n) => ({ id: `e${n}`, from: "a", to: "b" }));
	useCanvas.setState({ clipboard: { nodes: [], edges } });
	useCanvas.getState().paste();
	expect(useCanvas.getState().history.present.edges).toEqual([]);
	expect(useCanvas.getState().notice).toBe("a canvas has at most 8000 connections");
});
