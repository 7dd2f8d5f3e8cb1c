import { describe, expect, test } from "vitest";
import { emptyCanvas } from "./document";
import { exportCanvas, importCanvas, sharedCanvas } from "./exchange";
import { masked, SHOWN } from "./secrets";

const made = (letters: string, length: number) => letters.repeat(length).slice(0, length);

describe("given words with a key in them, then only the key is taken out", () => {
	test.each([
		["sk-", made("aB3", 48)],
		["sk-proj-", made("aB3_-", 60)],
		["sk-ant-", made("aB3-", 60)],
		["ghp_", made("aB3", 36)],
		["github_pat_", made("aB3_", 60)],
		["glpat-", made("aB3", 20)],
		["xoxb-", made("123-", 24)],
		["sk_live_", made("aB3", 24)],
		["hf_", made("aBc", 34)],
		["AIza", made("aB3", 35)],
		["AKIA", made("ABC2", 16)],
		["rr_", made("a1b2", 43)],
		["eyJhbGciOiJIUzI1NiJ9.", "eyJzdWIiOiIxMjM0In0.dozjgNryP4J3jVmNHl0w"],
		["-----BEGIN RSA PRIVATE KEY-----\n", `${made("MIIE", 64)}\n-----END RSA PRIVATE KEY-----`],
	])("%s…", (head, rest) => {
		expect(masked(`Use ${head}${rest}, then stop.`)).toEqual({ text: `Use ${SHOWN}, then stop.`, keys: 1 });
	});
	test("a password in an address, and what follows Bearer", () => {
		expect(masked("postgres://me:hunter2@db/x and Authorization: Bearer abcdefghijklmnopqrstuvwx")).toEqual({
			text: `postgres://me:${SHOWN}@db/x and Authorization: Bearer ${SHOWN}`,
			keys: 2,
		});
	});
});

test.each([
	"What is 17% of 230? {{input}}",
	"task-force, sk-i slope, rr_short, hf_hub, a bearer of news",
	"https://example.org:8000/path?a=b@c and mail to me@example.org",
	"run_01hzy3k8q6w5v4u3t2s1r0qpnm and 3f786850e387550fdab836ed7e6dc881de23001b",
])("given words like %j, then they stay", (text) => {
	expect(masked(text)).toEqual({ text, keys: 0 });
});

test("given 20,000 characters without an end, then they are looked through at once", () => {
	for (const text of ["a:", "eyJ", "eyJ-", "-----BEGIN PRIVATE KEY-----", "x://a:", "Bearer "])
		expect(masked(text.repeat(20_000 / text.length)).text.length).toBeLessThanOrEqual(20_000 * 2);
});

test("given keys anywhere in a canvas, then the file has none, says how many there were, and is a canvas", () => {
	const key = `ghp_${made("aB3", 36)}`;
	const document = {
		...emptyCanvas(),
		name: `with ${key}`,
		nodes: [
			{ id: "a", kind: "agent" as const, x: 0, y: 0, data: { agent: "react", task: `Use ${key}`, session: key } },
			{ id: "n", kind: "note" as const, x: 0, y: 0, data: { text: `${key} ${key}` } },
		],
	};
	const { text, keys } = sharedCanvas(document);
	expect([text.includes(key), keys, importCanvas(text).nodes.length]).toEqual([false, 5, 2]);
	// What is kept in this browser is as it was typed.
	expect(exportCanvas(document)).toContain(key);
});

test("given a canvas with runs and a place on the server, then the file names neither", () => {
	const document = { ...emptyCanvas(), kept: "plan", sheet: 3 };
	expect(Object.keys(JSON.parse(sharedCanvas(document).text))).toEqual([
		"format",
		"version",
		"name",
		"namespace",
		"nodes",
		"edges",
	]);
});
