import { describe, expect, test } from "vitest";
import type { components } from "@/api/schema";
import { branches } from "./branches";

type TreeNode = components["schemas"]["TreeNode"];

const run = (run_id: string, from?: string, at_seq = 1): TreeNode => ({
	run_id,
	status: "succeeded",
	task: run_id,
	steps: 3,
	created_at: "2026-01-01T00:00:00Z",
	forked_from: from ? { run_id: from, at_seq } : null,
});
const shape = (items: TreeNode[]) => branches(items).map(({ run: { run_id }, depth }) => [run_id, depth]);

describe("runs that branched off each other", () => {
	test("stand below the one that they branched off, deeper by one", () => {
		expect(shape([run("a"), run("b", "a"), run("c", "a"), run("d", "b")])).toEqual([
			["a", 0],
			["b", 1],
			["d", 2],
			["c", 1],
		]);
	});
	test("whose origin is not among them stand at the top", () => {
		expect(shape([run("b", "gone"), run("c", "b")])).toEqual([
			["b", 0],
			["c", 1],
		]);
	});
	test("are each there once, also in a circle that no server should answer", () => {
		const ids = shape([run("a", "b"), run("b", "a"), run("c")]).map(([id]) => id);
		expect(ids.sort()).toEqual(["a", "b", "c"]);
	});
});
