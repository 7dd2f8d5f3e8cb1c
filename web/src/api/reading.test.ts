import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { keepReading } from "./reading";

const page = Object.assign(new EventTarget(), { hidden: false });
const EVERY_MS = 10_000;
/** When it was read, in seconds since the beginning. */
let readings: number[] = [];
let works = true;
let stop = () => {};

const look = (hidden: boolean) => {
	page.hidden = hidden;
	page.dispatchEvent(new Event("visibilitychange"));
};
const pass = (seconds: number) => vi.advanceTimersByTimeAsync(seconds * 1_000);

beforeEach(() => {
	vi.useFakeTimers({ now: 0 });
	vi.stubGlobal("document", page);
	[readings, works, page.hidden] = [[], true, false];
	stop = keepReading(async () => {
		readings.push(Date.now() / 1_000);
		return works;
	}, EVERY_MS);
});
afterEach(() => {
	stop();
	vi.useRealTimers();
	vi.unstubAllGlobals();
});

test("given a page that is looked at, then it is read at once, and every so often until it is ended", async () => {
	await pass(25);
	expect(readings).toEqual([0, 10, 20]);
	stop();
	await pass(100);
	look(true);
	look(false);
	await pass(100);
	expect([readings, vi.getTimerCount()]).toEqual([[0, 10, 20], 0]);
});

test("given a backend that is away, then it is asked sooner at first, and as before when it is back", async () => {
	works = false;
	await pass(30);
	expect(readings).toEqual([0, 10, 11, 13, 17, 25]);
	works = true;
	await pass(20);
	expect(readings.slice(6)).toEqual([33, 43]);
});

test("given a page that nobody looks at, then it is read seldom, and at once when somebody looks again", async () => {
	await pass(1);
	look(true);
	await pass(62);
	// What was put off before it was hidden comes as it was to come.
	expect(readings).toEqual([0, 10, 50]);
	look(false);
	await pass(0);
	expect(readings).toEqual([0, 10, 50, 63]);
	await pass(10);
	expect(readings.at(-1)).toBe(73);
});

test("given a page that is left for a moment, then nothing is read before its time", async () => {
	await pass(2);
	look(true);
	await pass(1);
	look(false);
	await pass(6);
	expect(readings).toEqual([0]);
	await pass(1);
	expect(readings).toEqual([0, 10]);
});

test("given a reading that is under way, then looking at the page begins no other, and the end aborts it", async () => {
	stop();
	const signals: AbortSignal[] = [];
	const end = keepReading((signal) => {
		signals.push(signal);
		return new Promise(() => {});
	}, EVERY_MS);
	look(true);
	look(false);
	await pass(60);
	expect(signals.map((one) => one.aborted)).toEqual([false]);
	end();
	expect(signals.map((one) => one.aborted)).toEqual([true]);
});
