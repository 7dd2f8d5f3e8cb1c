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
type TreeEdge = components["schemas"]["TreeEdge"];
const forks = (items: TreeNode[]): TreeEdge[] =>
	items.flatMap(({ run_id, forked_from }) =>
		forked_from ? [{ kind: "fork" as const, from: forked_from.run_id, to: run_id, at_seq: forked_from.at_seq }] : [],
	);
const shape = (items: TreeNode[], edges = forks(items)) =>
	branches(items, edges).map(({ run: { run_id }, depth }) => [run_id, depth]);

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
	test("of a chain stand below the first that they wait for", () => {
		const then = (from: string, to: string): TreeEdge => ({ kind: "chain", from, to });
		const edges = [then("a", "b"), then("a", "c"), then("b", "d"), then("c", "d")];
		expect(shape([run("a"), run("b"), run("c"), run("d")], edges)).toEqual([
			["a", 0],
			["b", 1],
			["d", 2],
			["c", 1],
		]);
	});
	test("are each there once, also in a circle that no server should answer", () => {
		const ids = shape([run("a", "b"), run("b", "a"), run("c")]).map(([id]) => id);
		expect(ids.sort()).toEqual(["a", "b", "c"]);
	});
});
