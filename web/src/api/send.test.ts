import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { ApiError, call, Offline, send, TimedOut, whenUnauthorized } from "./client";

/** As a browser's, as far as it is used; each is driven by the test. */
class Request {
	static last: Request;
	readonly upload: { onprogress?: (event: { loaded: number; total: number }) => void } = {};
	readonly headers: Record<string, string> = {};
	status = 0;
	responseText = "";
	onload = () => {};
	onerror = () => {};
	ontimeout = () => {};
	open = () => {
		Request.last = this;
	};
	setRequestHeader = (name: string, value: string) => {
		this.headers[name] = value;
	};
	send = () => {};

	answers(status: number, body: unknown) {
		this.status = status;
		this.responseText = typeof body === "string" ? body : JSON.stringify(body);
		this.onload();
	}
}

const shares: number[] = [];
const begin = () =>
	send<{ id: string }>("/ingest", new FormData(), { key: "k", timeoutMs: 1, onSent: (share) => shares.push(share) });

beforeEach(() => {
	shares.length = 0;
	vi.stubGlobal("XMLHttpRequest", Request);
});
afterEach(() => vi.unstubAllGlobals());

test("given a form that is sent bit by bit, then each bit is told, and the answer comes", async () => {
	const sent = begin();
	for (const loaded of [0, 5, 10]) Request.last.upload.onprogress?.({ loaded, total: 10 });
	Request.last.answers(202, { id: "a" });
	expect([await sent, shares, Request.last.headers["idempotency-key"]]).toEqual([{ id: "a" }, [0, 0.5, 1], "k"]);
});

test("given a server that refuses, then its reason is thrown as of any call", async () => {
	const sent = begin();
	Request.last.answers(413, {
		code: "too_large",
		title: "Too large",
		detail: "the file is too large",
		hint: "split it",
	});
	await expect(sent).rejects.toMatchObject({ status: 413, code: "too_large", hint: "split it" });
	const unreadable = begin();
	Request.last.answers(502, "<html>");
	await expect(unreadable).rejects.toBeInstanceOf(ApiError);
});

test("given a server that wants to know who asks, then that is told", async () => {
	const told = vi.fn();
	whenUnauthorized(told);
	const sent = begin();
	Request.last.answers(401, { code: "unauthorized", title: "Who?", detail: "a token is missing" });
	await expect(sent).rejects.toMatchObject({ status: 401 });
	expect(told).toHaveBeenCalledOnce();
});

test.each(["onerror", "ontimeout"] as const)("given nobody who answers (%s), then it is offline", async (how) => {
	const sent = begin();
	Request.last[how]();
	await expect(sent).rejects.toBeInstanceOf(Offline);
});

const NO_JSON = ["", "<html>signed out</html>", '{"id":'];

test.each(NO_JSON)(
	"given an answer of something else than the API, %j, then that is said and nothing waits on",
	async (body) => {
		const words = { status: 200, code: "unreadable", message: "the server answered 200 with what is no JSON" };
		const sent = begin();
		Request.last.answers(200, body);
		await expect(sent).rejects.toMatchObject(words);
		vi.stubGlobal("fetch", async () => new Response(body));
		await expect(call("/runs")).rejects.toMatchObject(words);
	},
);

test("given an answer without words, then there is none", async () => {
	vi.stubGlobal("fetch", async () => new Response(null, { status: 204 }));
	expect(await call("/auth/session", { method: "DELETE" })).toBeUndefined();
});

test("given a connection that is lost in the middle of an answer, then the backend is offline", async () => {
	const cut = new ReadableStream({ pull: (controller) => controller.error(new TypeError("network error")) });
	vi.stubGlobal("fetch", async () => new Response(cut));
	await expect(call("/runs")).rejects.toBeInstanceOf(Offline);
});

test("given a server that takes too long, then it is said for how long it was waited", async () => {
	vi.stubGlobal("fetch", (_: string, { signal }: RequestInit) => {
		return new Promise((_, reject) => signal?.addEventListener("abort", () => reject(signal.reason)));
	});
	const late = call("/runs", { timeoutMs: 10 });
	await expect(late).rejects.toBeInstanceOf(TimedOut);
	await expect(late).rejects.toMatchObject({ message: "the backend did not answer within 0.01 s" });
	const sent = begin();
	Request.last.ontimeout();
	await expect(sent).rejects.toBeInstanceOf(TimedOut);
});
