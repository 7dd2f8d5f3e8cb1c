import { expect, test } from "vitest";
import { bytes, count, lasted, moment, number, seconds, settled } from "./words";

test("given numbers, they read as people write them", () => {
	expect([0, 1, 1234].map((many) => count(many, "step"))).toEqual(["0 steps", "1 step", "1,234 steps"]);
	expect([number(1e6), number(0.00012346)]).toEqual(["1,000,000", "0.0001235"]);
	expect([number(175_298.34), number(1_234.5), number(0.5), number(-2.25)]).toEqual([
		"175,300",
		"1,235",
		"0.5",
		"-2.25",
	]);
	expect([bytes(1), bytes(2048), bytes(35 << 20)]).toEqual(["1 byte", "2.0 KiB", "35 MiB"]);
	expect([seconds(59), seconds(90), seconds(7_260)]).toEqual(["59 s", "2 min", "2 h 1 min"]);
});

test.each([
	[0, "0 ms"],
	[-3, "0 ms"],
	[42.4, "42 ms"],
	[100, "0.1 s"],
	[5_040, "5.0 s"],
	[59_940, "59.9 s"],
	[59_960, "1 min"],
	[90_000, "1 min 30 s"],
	[3_599_400, "59 min 59 s"],
	[7_260_000, "2 h 1 min"],
])("given %d ms, then it lasted %s", (ms, words) => expect(lasted(ms)).toBe(words));

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
