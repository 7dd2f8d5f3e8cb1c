import { expect, test } from "vitest";
import { bytes, count, moment, number, seconds, settled } from "./words";

test("given numbers, they read as people write them", () => {
	expect([0, 1, 1234].map((many) => count(many, "step"))).toEqual(["0 steps", "1 step", "1,234 steps"]);
	expect([number(1e6), number(0.00012345)]).toEqual(["1,000,000", "0.0001234"]);
	expect([bytes(1), bytes(2048), bytes(35 << 20)]).toEqual(["1 byte", "2.0 KiB", "35 MiB"]);
	expect([seconds(59), seconds(90), seconds(7_260)]).toEqual(["59 s", "2 min", "2 h 1 min"]);
});

test("given a time, its day is told only where it is another one", () => {
	const now = new Date(2026, 10, 28, 12);
	const clock = new Date(2026, 10, 28, 9, 5, 7).toLocaleTimeString(undefined, {
		hour: "2-digit",
		minute: "2-digit",
		second: "2-digit",
	});
	expect(moment(new Date(2026, 10, 28, 9, 5, 7).toISOString(), now)).toBe(clock);
	expect(moment(new Date(2026, 10, 27, 9, 5, 7).toISOString(), now)).toMatch(/2026.*, /);
});

test.each([
	["team", "default", "", "team"],
	["  team ", "default", "", "team"],
	["default", "default", "", null],
	[" default ", "default", "", null],
	["", "team", "default", "default"],
	["  ", "default", "default", null],
	["", "", "", null],
	["", "team", "", ""],
])(
	"given %j typed in the place of %j, where %j stands for nothing, then it becomes %j",
	(typed, present, fallback, value) => {
		expect(settled(typed, present, fallback)).toBe(value);
	},
);
