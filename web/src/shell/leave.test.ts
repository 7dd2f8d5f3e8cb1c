import { afterEach, beforeEach, expect, test, vi } from "vitest";
import type { SessionView } from "@/api/shapes";
import { MemoryStore } from "@/canvas/memory-store";
import { useSession } from "@/session/store";
import { followOtherTabs } from "./leave";

const ann: SessionView = { auth: "required", name: "ann", scopes: ["run"], namespaces: [], namespace: "team" };
const KEY = "riverrun.canvas.tab.1";
const drawing = JSON.stringify({ canvas: "{}", runs: {}, chains: {}, tab: "1", at: 1, owner: "ann" });

let end = () => {};
let there: BroadcastChannel;
const reload = vi.fn();
const asked = vi.fn(async () => Response.json(ann));

beforeEach(() => {
	vi.stubGlobal("sessionStorage", new MemoryStore());
	vi.stubGlobal("localStorage", new MemoryStore([[KEY, drawing]]));
	vi.stubGlobal("window", { location: { reload } });
	vi.stubGlobal("fetch", asked);
	useSession.setState({ session: ann, needed: false });
	there = new BroadcastChannel("riverrun.session");
	end = followOtherTabs();
});
afterEach(() => {
	end();
	there.close();
	vi.unstubAllGlobals();
});

test("given ann's work in a tab, when somebody else signs out in another one, then hers stays and the server is asked", async () => {
	there.postMessage({ is: "out", owner: "bob" });
	await vi.waitFor(() => expect(asked).toHaveBeenCalledOnce());
	expect([localStorage.getItem(KEY), reload.mock.calls.length]).toEqual([drawing, 0]);
});

// The last one: whoever has left is kept no more for as long as the page lives.
test("given ann's work in a tab, when she signs out in another one, then nothing of it is left here", async () => {
	there.postMessage({ is: "out", owner: "ann" });
	await vi.waitFor(() => expect(reload).toHaveBeenCalledOnce());
	expect(localStorage.getItem(KEY)).toBeNull();
});
