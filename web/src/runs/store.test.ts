import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import { pendingApprovals, type RunMessage } from "./fold";
import { isGoing, useRuns } from "./store";

const RUN = "run_1";
/** What the server says of the run: the steps that it knows, and those of them that wait. */
const server = { steps: [1, 2], open: [1, 2] };
const sockets: FakeSocket[] = [];

class FakeSocket {
	onopen: (() => void) | null = null;
	onmessage: ((event: { data: string }) => void) | null = null;
	onclose: ((event: { code: number; reason: string }) => void) | null = null;
	closed = false;
	constructor(readonly url = "") {
		sockets.push(this);
	}
	/** As a browser's: that it is closed is told later. */
	close() {
		this.closed = true;
		setTimeout(() => this.onclose?.({ code: 1005, reason: "" }));
	}
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

const start = (run_id: string) => ({ type: "start", run_id, agent: "react" }) as RunMessage;
const thought = (seq: number): RunMessage => ({
	type: "step",
	step: { seq, kind: "thought", agent: "react", text: `thought ${seq}`, at: "2026-01-01T00:00:00Z" },
});

test.each(["cancel", "stop", "resume", "decide"] as const)(
	"given a run that goes on, when the server is away at a %s, then the run still goes on, and its end takes the words with it",
	async (what) => {
		const id = `run_${what}`;
		const { follow, cancel, stop, resume, decide } = useRuns.getState();
		follow(id);
		const socket = sockets.at(-1);
		socket?.say(start(id), thought(1));
		await vi.advanceTimersByTimeAsync(100);
		vi.stubGlobal("fetch", async () => {
			throw new TypeError("Failed to fetch");
		});
		await { cancel, stop, resume, decide: () => decide(id, 1, "approve") }[what](id);
		const run = () => useRuns.getState().runs[id];
		expect([run()?.problem, isGoing(run())]).toEqual(["the backend is offline", true]);
		// It is the same connection that goes on.
		socket?.say(thought(2));
		await vi.advanceTimersByTimeAsync(100);
		expect(run()?.steps).toHaveLength(2);
		const result = { run_id: id, status: "succeeded", steps: [] };
		socket?.say({ type: "final", result } as unknown as RunMessage);
		await vi.advanceTimersByTimeAsync(100);
		expect([run()?.status, run()?.problem, isGoing(run())]).toEqual(["succeeded", null, false]);
	},
);

test("given a stream that the server refuses, then the run is not taken for one that goes on, and its reason stays", async () => {
	useRuns.getState().follow("run_unknown");
	sockets.at(-1)?.onclose?.({ code: 1008, reason: "there is no such run" });
	await vi.advanceTimersByTimeAsync(20_000);
	const run = useRuns.getState().runs.run_unknown;
	expect([run?.problem, isGoing(run)]).toEqual(["there is no such run", false]);
});

test("given a run that was just started, when it is stopped, then its chain is cancelled without asking the server which it is", async () => {
	const asked: string[] = [];
	vi.stubGlobal("fetch", async (url: string, { method }: RequestInit = {}) => {
		asked.push(`${method} ${new URL(url, "http://127.0.0.1").pathname}`);
		return Response.json({ chain_id: "chain_new", runs: [{ name: "a", run_id: "run_new" }] });
	});
	await useRuns.getState().start({ runs: [] }, "key");
	await useRuns.getState().stop("run_new");
	expect(asked).toEqual(["POST /chains", "POST /chains/chain_new/cancel"]);
});

describe("given a run that is looked at", () => {
	const run = (id: string) => useRuns.getState().runs[id];
	const LATER_MS = 60_000;

	test("when it is looked at elsewhere a moment later, then its connection is the same", async () => {
		const first = useRuns.getState().watch("run_seen");
		const count = sockets.length;
		sockets.at(-1)?.say(start("run_seen"), thought(1));
		first();
		const second = useRuns.getState().watch("run_seen");
		await vi.advanceTimersByTimeAsync(LATER_MS);
		expect([sockets.length, run("run_seen")?.steps.length, sockets.at(-1)?.closed]).toEqual([count, 1, false]);
		second();
	});

	test("when nobody looks at it any more, then it is let go, and read anew by whoever comes back", async () => {
		server.open = [1];
		const [first, second] = [useRuns.getState().watch("run_left"), useRuns.getState().watch("run_left")];
		const socket = sockets.at(-1);
		socket?.say(start("run_left"), asks(1));
		first();
		await vi.advanceTimersByTimeAsync(LATER_MS);
		expect(run("run_left")?.status).toBe("waiting_approval");
		second();
		await vi.advanceTimersByTimeAsync(LATER_MS);
		expect([socket?.closed, run("run_left"), vi.getTimerCount()]).toEqual([true, undefined, 0]);
		useRuns.getState().watch("run_left")();
		expect(sockets.at(-1)).not.toBe(socket);
		expect(sockets.at(-1)?.url).toContain("after=0");
	});

	test("when the canvas follows it, too, then it is followed to its end", async () => {
		const leave = useRuns.getState().watch("run_kept");
		useRuns.getState().follow("run_kept");
		const socket = sockets.at(-1);
		leave();
		await vi.advanceTimersByTimeAsync(LATER_MS);
		socket?.say(start("run_kept"), thought(1));
		await vi.advanceTimersByTimeAsync(100);
		expect([socket?.closed, run("run_kept")?.steps.length]).toEqual([false, 1]);
	});
});
