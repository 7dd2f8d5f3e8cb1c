import { describe, expect, test } from "vitest";
import type { FindingView, Severity } from "@/api/shapes";
import { filtered, grouped, NO_FILTER, stacked } from "./grouping";
import { counts, pairs, rows } from "./unified";

const finding = (file: string, line: number, severity: Severity, change: Partial<FindingView> = {}): FindingView => ({
	id: `${file}:${line}`,
	tool: "ruff",
	rule: "F401",
	severity,
	file,
	line,
	column: 1,
	message: "unused import",
	...change,
});

describe("findings", () => {
	const all = [
		finding("b.py", 9, "low"),
		finding("a.py", 5, "high", { tool: "leakage", rule: "L1", message: "fit before split" }),
		finding("b.py", 1, "low"),
		finding("a.py", 2, "info"),
		finding("c.py", 1, "strange" as Severity),
	];
	test("are grouped with the worst group first, and the worst first in each", () => {
		const groups = grouped(all, "file");
		expect(groups.map(({ name, worst }) => [name, worst])).toEqual([
			["a.py", "high"],
			["b.py", "low"],
			["c.py", "strange"],
		]);
		expect(groups[1]?.findings.map((one) => one.line)).toEqual([1, 9]);
		expect(grouped(all, "tool")[0]?.name).toBe("leakage");
	});
	test("are counted by severity, those with the most first", () => {
		const [first, second] = stacked(all.slice(0, 4), "file");
		expect(first).toEqual({
			name: "a.py",
			total: 2,
			parts: [
				{ severity: "high", count: 1 },
				{ severity: "info", count: 1 },
			],
		});
		expect(second).toEqual({ name: "b.py", total: 2, parts: [{ severity: "low", count: 2 }] });
		expect(stacked([], "tool")).toEqual([]);
	});
	test.each([
		[{}, 5],
		[{ severity: "low" }, 3],
		[{ severity: "critical" }, 0],
		[{ tool: "leakage" }, 1],
		[{ text: " SPLIT " }, 1],
		[{ text: "b.py", severity: "high" }, 0],
	])("filtered by %j, %i are left", (filter, left) => {
		expect(filtered(all, { ...NO_FILTER, ...filter })).toHaveLength(left);
	});
});

describe("a unified diff", () => {
	const diff = `--- a/x.py
+++ b/x.py
@@ -1,4 +1,5 @@
 import os
-import sys
-x = 1
+x = 2
+y = 3
+z = 4
 
@@ -10 +11 @@ def f():
--- a line that looks like a head
+@@ -1 +1 @@ and another
\\ No newline at end of file
`;
	test("is rows with the numbers of both sides", () => {
		const all = rows(diff);
		expect(counts(all)).toEqual({ added: 4, removed: 3 });
		expect(all[2]).toEqual({ kind: "removed", left: 2, right: null, text: "import sys" });
		expect(all[7]).toEqual({ kind: "same", left: 4, right: 5, text: "" });
		expect(all.slice(8)).toEqual([
			{ kind: "place", text: "@@ -10 +11 @@ def f():" },
			{ kind: "removed", left: 10, right: null, text: "-- a line that looks like a head" },
			{ kind: "added", left: null, right: 11, text: "@@ -1 +1 @@ and another" },
			{ kind: "note", text: "No newline at end of file" },
		]);
	});
	test("stands beside each other, what was removed against what was added", () => {
		const all = pairs(rows(diff));
		expect(all[2]).toEqual({
			left: { line: 2, text: "import sys", changed: true },
			right: { line: 2, text: "x = 2", changed: true },
		});
		expect(all[4]).toEqual({ left: null, right: { line: 4, text: "z = 4", changed: true } });
	});
	test.each(["", "not a diff", "--- a\n+++ b\n", "+stray\n-stray"])("%j has no rows", (text) => {
		expect(rows(text)).toEqual([]);
	});
});
