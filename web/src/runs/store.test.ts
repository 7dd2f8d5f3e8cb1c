import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { pendingApprovals, type RunMessage } from "./fold";
import { useRuns } from "./store";

const RUN = "run_1";
/** What the server says of the run: the steps that it knows, and those of them that wait. */
const server = { steps: [1, 2], open: [1, 2] };
const sockets: FakeSocket[] = [];

class FakeSocket {
	onopen: (() => void) | null = null;
	onmessage: ((event: { data: string }) => void) | null = null;
	onclose: ((event: { code: number; reason: string }) => void) | null = null;
	constructor() {
		sockets.push(this);
	}
	close() {}
	say(...messages: RunMessage[]) {
		this.onopen?.();
		for (const message of messages) this.onmessage?.({ data: JSON.stringify(message) });
	}
}

const asks = (seq: number): RunMessage => ({
	type: "step",
	step: {
		seq,
		kind: "approval",
		agent: "react",
		at: "2026-01-01T00:00:00Z",
		tool: { call_id: `c${seq}`, name: "mail", arguments: {} },
	},
});

beforeEach(() => {
	vi.useFakeTimers();
	vi.stubGlobal("window", { location: { origin: "http://127.0.0.1" } });
	vi.stubGlobal("WebSocket", FakeSocket);
	vi.stubGlobal("fetch", async () =>
		Response.json({
			run_id: RUN,
			steps: server.steps.map((seq) => ({ seq })),
			pending_approvals: server.open.map((step) => ({ step })),
		}),
	);
});

afterEach(() => {
	vi.useRealTimers();
	vi.unstubAllGlobals();
});

test("given two calls that wait, one that is decided elsewhere loses its buttons while the other still waits", async () => {
	useRuns.getState().follow(RUN);
	sockets.at(-1)?.say({ type: "start", run_id: RUN, agent: "react" } as RunMessage, asks(1), asks(2));
	const waiting = () => {
		const run = useRuns.getState().runs[RUN];
		return run ? [pendingApprovals(run), run.status] : null;
	};
	await vi.advanceTimersByTimeAsync(100);
	expect(waiting()).toEqual([[1, 2], "waiting_approval"]);

	// Long after both came, so that nothing that the stream sends makes anyone look.
	await vi.advanceTimersByTimeAsync(60_000);
	server.open = [2];
	await vi.advanceTimersByTimeAsync(20_000);
	expect(waiting()).toEqual([[2], "waiting_approval"]);

	server.open = [];
	await vi.advanceTimersByTimeAsync(20_000);
	expect(waiting()).toEqual([[], "running"]);
	await vi.advanceTimersByTimeAsync(60_000);
	expect(vi.getTimerCount()).toBe(0);
});

test("given a run that is asked to look again, then it is told whether the server took that in, and why not", async () => {
	expect(await useRuns.getState().resume(RUN)).toBe(true);
	expect(useRuns.getState().runs[RUN]?.problem).toBeNull();
	const ended = { status: 409, code: "run_ended", title: "Conflict", detail: "it has ended" };
	vi.stubGlobal("fetch", async () => Response.json(ended, { status: 409 }));
	expect(await useRuns.getState().resume(RUN)).toBe(false);
	expect(useRuns.getState().runs[RUN]?.problem).toBe("it has ended");
});

test("given runs of which two are of one chain, when all are stopped, then the chain is cancelled once and the other by itself", async () => {
	const sent: string[] = [];
	vi.stubGlobal("fetch", async (url: string, { method }: RequestInit = {}) => {
		const { pathname } = new URL(url, "http://127.0.0.1");
		if (method === "POST") sent.push(pathname);
		const chain = pathname.endsWith("run_alone") ? undefined : { chain_id: "chain_1", name: "a", runs: 2 };
		return Response.json({ chain });
	});
	await useRuns.getState().stopAll(["run_a", "run_b", "run_alone"]);
	expect(sent.sort()).toEqual(["/chains/chain_1/cancel", "/runs/run_alone/cancel"]);
});
