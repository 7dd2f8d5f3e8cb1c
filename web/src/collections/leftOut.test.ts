import { expect, test } from "vitest";
import { leftOutWords } from "./leftOut";

test("given what was left out, each reason has its extensions and all are counted", () => {
	expect(leftOutWords({ skipped: 0 })).toBeNull();
	expect(leftOutWords({ skipped: 3 })).toBe("skipped 3");
	const left_out = [
		{ reason: "no_reader", files: 2 },
		{ reason: "no_reader", extension: ".doc", files: 1 },
		{ reason: "no_reader", extension: ".rtf", files: 2 },
		{ reason: "hidden_or_ignored", files: 3 },
		{ reason: "of_a_newer_server", files: 1 },
	];
	expect(leftOutWords({ skipped: 9, left_out })).toBe(
		"skipped 9 (no reader: .doc .rtf (2) and 2 more; hidden or ignored: 3; of_a_newer_server: 1)",
	);
	const many = Array.from({ length: 9 }, (_, at) => ({ reason: "no_reader", extension: `.a${at}`, files: 1 }));
	expect(leftOutWords({ skipped: 9, left_out: many })).toBe(
		"skipped 9 (no reader: .a0 .a1 .a2 .a3 .a4 .a5 and 3 more)",
	);
});
