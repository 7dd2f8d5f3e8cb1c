import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import { ApiError, call } from "@/api/client";
import { hearOtherTabs, type News, tellOtherTabs } from "./others";
import { homeNamespace, isSignedIn, ownerOf, useSession } from "./store";

const answer = (status: number, body: unknown) =>
	vi.fn(async () => new Response(body === undefined ? null : JSON.stringify(body), { status }));
const refused = { type: "", title: "", status: 401, detail: "no token", code: "unauthorized" };
const anonymous = { auth: "required", scopes: [], namespace: null };
const known = { auth: "required", scopes: ["run"], namespace: "team" };

const ann = { ...known, name: "ann" };

/** The page, as far as it can be loaded anew. */
const page = () => {
	const reload = vi.fn();
	vi.stubGlobal("window", { location: { reload } });
	return reload;
};

beforeEach(() => useSession.setState({ session: null, needed: false, round: 0, problem: null }));
afterEach(() => vi.unstubAllGlobals());

describe("a session", () => {
	test.each([
		["a server without tokens", 200, { auth: "off", scopes: ["run"], namespace: "default" }, false, false],
		["a server that knows no sessions", 404, { ...refused, status: 404 }, false, false],
		["nobody signed in", 200, anonymous, true, false],
		["a token that is known", 200, known, false, true],
	])("%s", async (_, status, body, needed, signedIn) => {
		vi.stubGlobal("fetch", answer(status, body));
		await useSession.getState().look();
		const now = useSession.getState();
		expect([now.needed, isSignedIn(now)]).toEqual([needed, signedIn]);
	});

	test("any refusal for want of a token asks for one, and signing in asks again for what was refused", async () => {
		vi.stubGlobal("fetch", answer(401, refused));
		await expect(call("/runs")).rejects.toBeInstanceOf(ApiError);
		expect(useSession.getState().needed).toBe(true);
		const fetch = answer(200, known);
		vi.stubGlobal("fetch", fetch);
		await useSession.getState().signIn("secret");
		expect(useSession.getState()).toMatchObject({ needed: false, round: 1, session: known });
		expect(fetch.mock.calls[0]).toMatchObject(["/auth/session", { method: "POST", body: '{"token":"secret"}' }]);
		expect(JSON.stringify(useSession.getState())).not.toContain("secret");
	});

	test("a wrong token leaves the question open", async () => {
		vi.stubGlobal("fetch", answer(401, refused));
		await expect(useSession.getState().signIn("wrong")).rejects.toBeInstanceOf(ApiError);
		expect(useSession.getState().needed).toBe(true);
	});

	test("that ends asks again", async () => {
		vi.stubGlobal("fetch", answer(200, anonymous));
		await useSession.getState().signOut();
		expect(useSession.getState().needed).toBe(true);
	});

	test("that ends lets go of what the page keeps before anybody is told, and not at all where the server refuses", async () => {
		useSession.setState({ session: { ...ann, scopes: ["run"], namespaces: [], auth: "required" } });
		const forget = vi.fn(() => expect(ownerOf(useSession.getState())).toBe("ann"));
		vi.stubGlobal("fetch", answer(500, { ...refused, status: 500 }));
		await expect(useSession.getState().signOut(forget)).rejects.toBeInstanceOf(ApiError);
		expect([forget.mock.calls.length, isSignedIn(useSession.getState())]).toEqual([0, true]);
		vi.stubGlobal("fetch", answer(200, anonymous));
		await useSession.getState().signOut(forget);
		expect([forget.mock.calls.length, ownerOf(useSession.getState())]).toEqual([1, null]);
	});

	test.each([
		["the same one signs in again", ann, 0],
		["another one signs in", { ...known, name: "bob" }, 1],
	])(
		"given ann's work on the page, when her token has run out and %s, then it is loaded anew %#",
		async (_, next, loads) => {
			const reload = page();
			vi.stubGlobal("fetch", answer(200, ann));
			await useSession.getState().look();
			vi.stubGlobal("fetch", answer(401, refused));
			await expect(call("/runs")).rejects.toBeInstanceOf(ApiError);
			expect([ownerOf(useSession.getState()), useSession.getState().needed]).toEqual(["ann", true]);
			vi.stubGlobal("fetch", answer(200, anonymous));
			await useSession.getState().look();
			expect([ownerOf(useSession.getState()), useSession.getState().needed]).toEqual(["ann", true]);
			vi.stubGlobal("fetch", answer(200, next));
			await useSession.getState().signIn("secret");
			expect(reload).toHaveBeenCalledTimes(loads);
			// Nothing of hers is shown to another one, not for a moment.
			expect(useSession.getState().needed).toBe(loads > 0);
		},
	);

	test("that another one took over in another tab loads the page anew", async () => {
		const reload = page();
		vi.stubGlobal("fetch", answer(200, ann));
		await useSession.getState().look();
		expect(reload).not.toHaveBeenCalled();
		vi.stubGlobal("fetch", answer(200, { ...known, name: "bob" }));
		await useSession.getState().look();
		expect(reload).toHaveBeenCalledOnce();
	});

	test("that the server does not tell is said, and not taken for one without tokens", async () => {
		vi.stubGlobal("fetch", answer(500, { ...refused, status: 500, detail: "out of order" }));
		await useSession.getState().look();
		expect([useSession.getState().problem, ownerOf(useSession.getState())]).toEqual(["out of order", null]);
		vi.stubGlobal("fetch", answer(200, { auth: "off", scopes: [], namespaces: [] }));
		await useSession.getState().look();
		expect([useSession.getState().problem, ownerOf(useSession.getState())]).toEqual([null, ""]);
	});

	test("is told to other tabs, and never to the one that tells", async () => {
		const here: News[] = [];
		const end = hearOtherTabs((news) => here.push(news));
		const there = new BroadcastChannel("riverrun.session");
		const heard = new Promise((resolve) => {
			there.onmessage = ({ data }) => resolve(data);
		});
		tellOtherTabs({ is: "out", owner: "ann" });
		expect(await heard).toEqual({ is: "out", owner: "ann" });
		expect(here).toEqual([]);
		there.close();
		end();
		tellOtherTabs({ is: "in" });
	});

	test.each([
		["http://127.0.0.1:8000", ""],
		["", null],
	])("of pages built for %j belongs to %j before anybody answers", async (base, owner) => {
		vi.resetModules();
		vi.stubEnv("NEXT_PUBLIC_API_BASE", base);
		const other = await import("./store");
		expect(other.ownerOf(other.useSession.getState())).toBe(owner);
		vi.unstubAllEnvs();
	});

	test.each([
		[null, "default"],
		[{ auth: "off" as const }, "default"],
		[{ auth: "required" as const, namespace: "team" }, "team"],
		[{ auth: "required" as const, namespace: "*" }, "default"],
	])("of %j begins in %s", (session, home) => expect(homeNamespace(session)).toBe(home));
});
