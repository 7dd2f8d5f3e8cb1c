import { afterEach, expect, test, vi } from "vitest";

afterEach(() => {
	vi.unstubAllEnvs();
	vi.unstubAllGlobals();
	vi.resetModules();
});

/** The calls of pages that were built for an API at this address, and are themselves on port 3000. */
async function builtFor(base: string) {
	vi.resetModules();
	vi.stubEnv("NEXT_PUBLIC_API_BASE", base);
	vi.stubGlobal("window", { location: { origin: "http://localhost:3000" } });
	const asked: string[] = [];
	vi.stubGlobal("fetch", async (path: string) => {
		asked.push(path);
		return Response.json({});
	});
	const { call, socketUrl } = await import("./client");
	await call("/agents");
	return [asked[0], socketUrl("/ws/runs/r")];
}

test.each([
	["https://api.example/", "https://api.example/agents", "wss://api.example/ws/runs/r"],
	["http://127.0.0.1:8000", "http://127.0.0.1:8000/agents", "ws://127.0.0.1:8000/ws/runs/r"],
	["", "/agents", "ws://localhost:3000/ws/runs/r"],
])("given pages built for %j, then they ask %s and listen to %s", async (base, path, socket) => {
	expect(await builtFor(base)).toEqual([path, socket]);
});
