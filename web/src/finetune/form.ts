/** What is typed into the form of a job, and the request that it makes. An empty field is the server's default. Pure. */

import type { JobBody, JobDefaults, LoraSettings, Method } from "@/api/shapes";

export type JobForm = {
	name: string;
	method: Method;
	dataset: string;
	baseModel: string;
	maxSteps: string;
	learningRate: string;
	batchSize: string;
	seqLen: string;
	seed: string;
	rank: string;
	alpha: string;
	dropout: string;
	targets: string;
};

export const EMPTY_FORM: JobForm = {
	name: "",
	method: "sft_lora",
	dataset: "",
	baseModel: "",
	maxSteps: "",
	learningRate: "",
	batchSize: "",
	seqLen: "",
	seed: "",
	rank: "",
	alpha: "",
	dropout: "",
	targets: "",
};

type Made = { body: JobBody; problem: null } | { body: null; problem: string };

export function bodyOf(form: JobForm, defaults: JobDefaults | null): Made {
	const wrong = (problem: string): Made => ({ body: null, problem });
	if (!form.dataset) return wrong("choose a dataset");
	if (!form.name.trim()) return wrong("give the model a name");
	const numbers: Partial<Record<(typeof NUMBERS)[number]["field"], number>> = {};
	for (const { field, label, from, to, whole } of NUMBERS) {
		const text = form[field].trim();
		if (text === "") continue;
		const value = Number(text);
		if (!Number.isFinite(value) || value < from || value > to || (whole && !Number.isInteger(value))) {
			return wrong(`${label} must be ${whole ? "a whole number" : "a number"} from ${from} to ${to}`);
		}
		numbers[field] = value;
	}
	const lora = loraOf(form, numbers, defaults);
	if (lora === undefined) return wrong("the adapter's settings can't be changed: the server's own are not known");
	return {
		problem: null,
		body: {
			name: form.name.trim(),
			method: form.method,
			dataset: form.dataset,
			...(form.baseModel ? { base_model: form.baseModel } : {}),
			...given("max_steps", numbers.maxSteps),
			...given("learning_rate", numbers.learningRate),
			...given("batch_size", numbers.batchSize),
			...given("seq_len", numbers.seqLen),
			...given("seed", numbers.seed),
			...(lora ? { lora } : {}),
		},
	};
}

export const NUMBERS = [
	{ field: "maxSteps", label: "most steps", from: 1, to: 1_000_000, whole: true },
	{ field: "learningRate", label: "learning rate", from: 1e-9, to: 1, whole: false },
	{ field: "batchSize", label: "batch size", from: 1, to: 4_096, whole: true },
	{ field: "seqLen", label: "tokens a sequence", from: 8, to: 1_048_576, whole: true },
	{ field: "seed", label: "seed", from: 0, to: Number.MAX_SAFE_INTEGER, whole: true },
	{ field: "rank", label: "adapter rank", from: 1, to: 1_024, whole: true },
	{ field: "alpha", label: "adapter alpha", from: 0, to: 10_000, whole: false },
	{ field: "dropout", label: "adapter dropout", from: 0, to: 0.99, whole: false },
] as const;

/** The adapter's settings as a whole; null when none was changed, undefined when what was left out is not known. */
function loraOf(
	form: JobForm,
	numbers: { rank?: number; alpha?: number; dropout?: number },
	defaults: JobDefaults | null,
): LoraSettings | null | undefined {
	const targets = form.targets.split(/[\s,]+/).filter(Boolean);
	const { rank, alpha, dropout } = numbers;
	if (rank === undefined && alpha === undefined && dropout === undefined && targets.length === 0) return null;
	const base = defaults?.lora;
	const all = {
		rank: rank ?? base?.rank,
		alpha: alpha ?? base?.alpha,
		dropout: dropout ?? base?.dropout,
		targets: targets.length > 0 ? targets : base?.targets,
	};
	return Object.values(all).includes(undefined) ? undefined : (all as LoraSettings);
}

function given<K extends keyof JobBody>(key: K, value: number | undefined): Partial<JobBody> {
	return value === undefined ? {} : ({ [key]: value } as Partial<JobBody>);
}
