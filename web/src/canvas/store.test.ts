import { afterEach, expect, test, vi } from "vitest";
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
