import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import { emptyCanvas } from "./document";
import { exportCanvas } from "./exchange";
import { begin } from "./history";
import { useKeeping } from "./keeping";
import { copyId, copyName, idFrom, idProblem } from "./kept";
import { useCanvas } from "./store";

describe("ids", () => {
	test.each([
		["Two in a row!", "two-in-a-row"],
		["Über Größe", "uber-gro-e"],
		["a__b  c", "a-b-c"],
		["日本", ""],
		["x".repeat(100), "x".repeat(63)],
		[`${"x".repeat(62)} y`, "x".repeat(62)],
	])("of the name %j: %j", (name, id) => {
		expect(idFrom(name)).toBe(id);
		expect(idProblem(id) === null).toBe(id !== "");
	});
	test.each(["", "A", "-a", "_a", "a.b", "a/b", "a__b", "ä", "x".repeat(64)])("%j is none", (id) =>
		expect(idProblem(id)).toContain("a-z"),
	);
	test("of copies are as short as others", () => {
		expect([copyId("plan", 2), copyId("x".repeat(63), 12)]).toEqual(["plan-2", `${"x".repeat(60)}-12`]);
		expect([copyName("Plan"), copyName("Plan (copy)"), copyName("x".repeat(120)).length]).toEqual([
			"Plan (copy)",
			"Plan (copy)",
			120,
		]);
	});
});

type Kept = { revision: number; document: Record<string, unknown>; keys: string[] };

/** Answers as the API does. */
class Server {
	readonly kept = new Map<string, Kept>();
	/** The next answers to saves are lost on their way. */
	lost = 0;

	answer = async (path: string, { method, body, headers }: { method: string; body?: string; headers: Headers }) => {
		const url = new URL(path, "http://server");
		const id = decodeURIComponent(url.pathname.split("/")[2] ?? "");
		if (method === "PUT") return this.save(id, JSON.parse(body ?? ""), (headers as never)["idempotency-key"]);
		const namespace = url.searchParams.get("namespace") ?? "";
		const found = this.kept.get(`${namespace}/${id}`);
		return found ? reply(200, view(namespace, id, found)) : reply(404, { code: "canvas_not_found", detail: "none" });
	};

	private save(id: string, body: { namespace: string; revision: number; document: Kept["document"] }, key: string) {
		const place = `${body.namespace}/${id}`;
		const before = this.kept.get(place);
		const known = before?.keys.includes(key) ?? false;
		if (!known && (before?.revision ?? 0) !== body.revision) {
			return reply(409, { code: "canvas_overtaken", detail: `is at revision ${before?.revision}`, hint: "riverrun" });
		}
		const now = known && before ? before : { revision: body.revision + 1, document: body.document, keys: [key] };
		this.kept.set(place, now);
		if (this.lost-- > 0) throw new TypeError("fetch failed");
		return reply(200, view(body.namespace, id, now));
	}
}

const view = (namespace: string, canvas_id: string, { revision, document }: Kept) => ({
	canvas_id,
	namespace,
	name: document.name,
	revision,
	saved_at: "2026-01-01T00:00:00Z",
	size_bytes: 1,
	document,
});
const reply = (status: number, body: unknown) => new Response(JSON.stringify(body), { status });

const keeping = useKeeping.getState;
const canvas = useCanvas.getState;
const present = () => canvas().history.present;
const named = (name: string) => ({ ...emptyCanvas(), name });

describe("a canvas of the server", () => {
	let server: Server;
	beforeEach(() => {
		server = new Server();
		vi.stubGlobal("fetch", server.answer);
		useCanvas.setState({ history: begin(named("Plan")), revisions: {}, notice: null });
		useKeeping.setState({ question: null, problem: null, busy: false });
	});
	afterEach(() => vi.unstubAllGlobals());

	/** What another page saves. */
	const elsewhere = (id: string, name: string) => {
		const revision = (server.kept.get(`default/${id}`)?.revision ?? 0) + 1;
		server.kept.set(`default/${id}`, { revision, document: JSON.parse(exportCanvas(named(name))), keys: [] });
	};
	const onServer = (id: string) => {
		const found = server.kept.get(`default/${id}`);
		return found && [found.revision, found.document.name];
	};

	test("is asked for its id once, and saved over its own revision from then on", async () => {
		await keeping().save();
		expect(keeping().question).toEqual({ kind: "id" });
		await keeping().saveAs("plan");
		expect([keeping().question, present().kept, onServer("plan")]).toEqual([null, "plan", [1, "Plan"]]);
		canvas().edit((now) => ({ ...now, name: "Plan B" }));
		await keeping().save();
		expect([keeping().question, onServer("plan")]).toEqual([null, [2, "Plan B"]]);
		expect(canvas().notice).toContain("revision 2");
	});

	test("goes there without the keys that were typed into it, which are said, and stay on the screen", async () => {
		const key = `ghp_${"aB3".repeat(12)}`;
		canvas().edit((now) => ({ ...now, name: `Plan ${key}` }));
		await keeping().saveAs("plan");
		expect(onServer("plan")).toEqual([1, "Plan [secret]"]);
		expect([present().name, canvas().notice]).toEqual([
			`Plan ${key}`,
			expect.stringContaining("one thing that looks like"),
		]);
	});

	test("that somebody else has saved is left alone until it is said what becomes of it", async () => {
		await keeping().saveAs("plan");
		elsewhere("plan", "Theirs");
		await keeping().save();
		expect([keeping().question, onServer("plan")]).toEqual([{ kind: "overtaken", id: "plan" }, [2, "Theirs"]]);
		expect(keeping().problem).toBe("is at revision 2");
		await keeping().overwrite("plan");
		expect([keeping().question, onServer("plan")]).toEqual([null, [3, "Plan"]]);
	});

	test("can be kept beside theirs, under an id that nobody has", async () => {
		elsewhere("plan", "Theirs");
		elsewhere("plan-2", "Another");
		await keeping().saveAs("plan");
		await keeping().saveCopy("plan");
		expect([onServer("plan"), onServer("plan-2")]).toEqual([
			[1, "Theirs"],
			[1, "Another"],
		]);
		expect([present().kept, present().name, onServer("plan-3")]).toEqual(["plan-3", "Plan (copy)", [1, "Plan (copy)"]]);
	});

	test("can be opened instead, and undo brings back what was on the screen with its own place", async () => {
		await keeping().saveAs("plan");
		elsewhere("other", "Other");
		await keeping().open("default", "other");
		expect([present().name, present().kept, keeping().question]).toEqual(["Other", "other", null]);
		canvas().undo();
		expect([present().name, present().kept]).toEqual(["Plan", "plan"]);
		await keeping().save();
		expect([onServer("plan"), onServer("other")]).toEqual([
			[2, "Plan"],
			[1, "Other"],
		]);
	});

	test("that was removed meanwhile can be saved anew and not be opened", async () => {
		await keeping().saveAs("plan");
		server.kept.clear();
		await keeping().save();
		expect(keeping().question).toEqual({ kind: "overtaken", id: "plan" });
		await keeping().open("default", "plan");
		expect([keeping().problem, present().name]).toEqual(["plan is gone: somebody has removed it", "Plan"]);
		await keeping().overwrite("plan");
		expect(onServer("plan")).toEqual([1, "Plan"]);
	});

	test("whose answer is lost is saved once when it is saved again", async () => {
		server.lost = 1;
		await keeping().saveAs("plan");
		expect([onServer("plan"), present().kept]).toEqual([[1, "Plan"], undefined]);
		await keeping().saveAs("plan");
		expect([keeping().question, onServer("plan"), present().kept]).toEqual([null, [1, "Plan"], "plan"]);
	});

	test("in another namespace, or begun anew, is another one", async () => {
		await keeping().saveAs("plan");
		canvas().edit((now) => ({ ...now, namespace: "team" }));
		await keeping().save();
		expect(server.kept.get("team/plan")?.revision).toBe(1);
		canvas().replace(emptyCanvas());
		await keeping().save();
		expect(keeping().question).toEqual({ kind: "id" });
	});
});
