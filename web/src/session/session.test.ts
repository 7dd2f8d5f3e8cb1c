import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import { ApiError, call } from "@/api/client";
import { homeNamespace, isSignedIn, useSession } from "./store";

const answer = (status: number, body: unknown) =>
	vi.fn(async () => new Response(body === undefined ? null : JSON.stringify(body), { status }));
const refused = { type: "", title: "", status: 401, detail: "no token", code: "unauthorized" };
const anonymous = { auth: "required", scopes: [], namespace: null };
const known = { auth: "required", scopes: ["run"], namespace: "team" };

beforeEach(() => useSession.setState({ session: null, needed: false, round: 0 }));
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

	test.each([
		[null, "default"],
		[{ auth: "off" as const }, "default"],
		[{ auth: "required" as const, namespace: "team" }, "team"],
		[{ auth: "required" as const, namespace: "*" }, "default"],
	])("of %j begins in %s", (session, home) => expect(homeNamespace(session)).toBe(home));
});
