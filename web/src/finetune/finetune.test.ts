import { describe, expect, test } from "vitest";
import type { JobDefaults, JobMessage, JobView } from "@/api/shapes";
import { summary } from "@/charts/summary";
import { bytes, seconds } from "@/ui/words";
import { applyJob, caughtUp, MAX_POINTS, NO_JOB, smoothed } from "./fold";
import { bodyOf, EMPTY_FORM, type JobForm } from "./form";

const job = (change: Partial<JobView> = {}): JobView => ({
	job_id: "job_1",
	name: "poet",
	method: "sft_lora",
	dataset: "verses",
	dataset_sha256: "a",
	base_model: "small",
	status: "queued",
	step: 0,
	max_steps: 10,
	settings: {},
	created_at: "2026-01-01T00:00:00Z",
	...change,
});
const progress = (seq: number, change: object = {}): JobMessage => ({
	type: "progress",
	seq,
	step: seq,
	max_steps: 10,
	loss: 4 - seq / 10,
	learning_rate: 1e-4,
	tokens_per_s: 100,
	eta_s: 9,
	...change,
});

describe("a list of jobs beside the one that is open", () => {
	const other = job({ job_id: "job_2", status: "running" });

	test.each([
		["queued", "running", "running"],
		["running", "succeeded", "succeeded"],
		["running", "cancelled", "cancelled"],
		["succeeded", "running", "succeeded"],
		["failed", "succeeded", "failed"],
	] as const)("given %s in the list and %s in its stream, it is %s", (listed, seen, shown) => {
		const jobs = caughtUp([other, job({ status: listed })], job({ status: seen }));
		expect(jobs.map(({ status }) => status)).toEqual(["running", shown]);
	});

	test("given none that is open, it is as it was read", () => {
		expect(caughtUp([other], null)).toEqual([other]);
	});
});

describe("the fold of a job's messages", () => {
	test("given progress, the curves and the job's figures follow", () => {
		const live = applyJob(NO_JOB, { type: "start", job: job() }, progress(1), progress(2, { eval_loss: 3.5 }));
		expect(live.points.map((point) => [point.step, point.evalLoss])).toEqual([
			[1, null],
			[2, 3.5],
		]);
		expect(live.job).toMatchObject({ status: "running", step: 2, eval_loss: 3.5, eta_s: 9 });
		expect(applyJob(live, progress(3)).job?.eval_loss).toBe(3.5);
	});

	test("given every split of the stream into connections, the state is the same", () => {
		const end: JobMessage = { type: "final", job: job({ status: "succeeded", step: 3 }) };
		const messages: JobMessage[] = [{ type: "start", job: job() }, progress(1), progress(2), progress(3), end];
		const whole = applyJob(NO_JOB, ...messages);
		for (let cut = 0; cut <= messages.length; cut++) {
			const first = applyJob(NO_JOB, ...messages.slice(0, cut));
			expect(applyJob(first, ...messages.slice(Math.max(0, cut - 1)))).toEqual(whole);
		}
		expect(whole).toMatchObject({ ended: true, seq: 3 });
	});

	test("given a very long job, the points stay bounded and held-out losses stay among them", () => {
		const steps = MAX_POINTS * 3;
		const all = Array.from({ length: steps }, (_, at) => progress(at + 1, at === 0 ? { eval_loss: 9 } : {}));
		const live = applyJob(NO_JOB, ...all);
		expect(live.points.length).toBeLessThanOrEqual(MAX_POINTS);
		expect([live.points[0]?.evalLoss, live.points.at(-1)?.step, live.seq]).toEqual([9, steps, steps]);
	});

	test("a smoothed constant is the constant from its beginning", () => {
		for (const value of smoothed([2, 2, 2, 2], 0.9)) expect(value).toBeCloseTo(2, 9);
		expect(smoothed([], 0.9)).toEqual([]);
	});
});

describe("the form of a job", () => {
	const defaults = { lora: { rank: 8, alpha: 16, dropout: 0, targets: ["q_proj"] } } as JobDefaults;
	const form = (change: Partial<JobForm>): JobForm => ({ ...EMPTY_FORM, name: "poet", dataset: "verses", ...change });

	test("sends only what was filled in", () => {
		expect(bodyOf(form({}), null).body).toEqual({ name: "poet", method: "sft_lora", dataset: "verses" });
		expect(bodyOf(form({ maxSteps: "50", learningRate: "2e-4", seed: "0" }), null).body).toMatchObject({
			max_steps: 50,
			learning_rate: 2e-4,
			seed: 0,
		});
	});
	test("fills the adapter's settings up with the server's", () => {
		const targets = ["q_proj"];
		expect(bodyOf(form({ rank: "4" }), defaults).body?.lora).toEqual({ rank: 4, alpha: 16, dropout: 0, targets });
		expect(bodyOf(form({ rank: "4" }), null).problem).toContain("adapter");
	});
	test.each([
		[{ name: " " }, "name"],
		[{ dataset: "" }, "dataset"],
		[{ maxSteps: "0" }, "most steps"],
		[{ maxSteps: "1.5" }, "whole"],
		[{ learningRate: "fast" }, "learning rate"],
		[{ learningRate: "Infinity" }, "learning rate"],
		[{ dropout: "1" }, "dropout"],
	])("%j is no request", (change, words) => {
		const { body, problem } = bodyOf(form(change), defaults);
		expect([body, problem]).toEqual([null, expect.stringContaining(words)]);
	});
});

describe("words for numbers", () => {
	test.each([
		[0, "0 bytes"],
		[1023, "1023 bytes"],
		[1536, "1.5 KiB"],
		[10 * 2 ** 30, "10 GiB"],
	])("%d bytes", (count, words) => expect(bytes(count)).toBe(words));
	test.each([
		[59, "59 s"],
		[150, "3 min"],
		[3599, "60 min"],
		[3600, "1 h 0 min"],
		[7199, "2 h 0 min"],
	])("%d seconds", (count, words) => expect(seconds(count)).toBe(words));
	test("curves have words, too", () => {
		expect(summary([], "step", [])).toBe("no values yet");
		const lines = [{ label: "loss", values: [4, null, 2.5] }];
		expect(summary([1, 2, 3], "step", lines)).toBe("step 1 to 3; loss from 4 to 2.5, lowest 2.5");
	});
});
