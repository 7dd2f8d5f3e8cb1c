"use client";

import { useEffect, useRef, useState } from "react";
import { call, describe } from "@/api/client";
import type { DatasetView, EstimateView, JobAccepted, JobBody, JobDefaults, Method } from "@/api/shapes";
import { Alert, Button, Field, Input, Panel, Select } from "@/ui";
import { bytes, count, number, seconds } from "@/ui/words";
import { bodyOf, EMPTY_FORM, type JobForm, NUMBERS } from "./form";

const METHODS: Record<Method, string> = {
	sft_lora: "adapter, from examples (sft_lora)",
	dpo: "adapter, from preferences (dpo)",
	qlora: "quantized adapter (qlora)",
	rlhf: "reinforcement from feedback (rlhf)",
};
const ASK_AFTER_MS = 500;

type Props = { datasets: DatasetView[]; defaults: JobDefaults | null; onStarted: (id: string) => void };

/** Starts a job: a dataset and a name are enough, the rest has defaults; how long it takes is said before. */
export function StartJob({ datasets, defaults, onStarted }: Props) {
	const [form, setForm] = useState<JobForm>(EMPTY_FORM);
	const [problem, setProblem] = useState<string | null>(null);
	const [starting, setStarting] = useState(false);
	/** Kept until the start is answered: trying again after a lost answer starts nothing twice. */
	const key = useRef<{ body: string; key: string } | null>(null);
	const set = (change: Partial<JobForm>) => setForm((now) => ({ ...now, ...change }));
	const made = bodyOf({ ...form, dataset: form.dataset || (datasets[0]?.name ?? "") }, defaults);
	const estimate = useEstimate(made.body);

	const start = async () => {
		if (!made.body) return setProblem(made.problem);
		const text = JSON.stringify(made.body);
		if (key.current?.body !== text) key.current = { body: text, key: crypto.randomUUID() };
		setStarting(true);
		setProblem(null);
		try {
			const options = { method: "POST", body: made.body, key: key.current.key };
			const accepted = await call<JobAccepted>("/finetune/jobs", options);
			key.current = null;
			onStarted(accepted.job_id);
		} catch (error) {
			setProblem(describe(error));
		} finally {
			setStarting(false);
		}
	};

	return (
		<Panel title="New training">
			<form
				aria-label="new training"
				className="space-y-2"
				onSubmit={(event) => {
					event.preventDefault();
					void start();
				}}
			>
				<Field label="name of the model">
					<Input maxLength={120} value={form.name} onChange={(event) => set({ name: event.target.value })} />
				</Field>
				<Field label="dataset">
					<Select value={form.dataset || datasets[0]?.name} onChange={(event) => set({ dataset: event.target.value })}>
						{datasets.length === 0 && <option value="">upload one first</option>}
						{datasets.map(({ name, format }) => (
							<option key={name} value={name}>
								{name} ({format})
							</option>
						))}
					</Select>
				</Field>
				<Field label="method">
					<Select value={form.method} onChange={(event) => set({ method: event.target.value as Method })}>
						{(Object.keys(METHODS) as Method[]).map((method) => {
							const known = defaults?.methods.find((one) => one.name === method);
							return (
								<option key={method} value={method} disabled={known?.available === false}>
									{METHODS[method]}
									{known?.available === false && `: ${known.reason ?? "not here"}`}
								</option>
							);
						})}
					</Select>
				</Field>
				<BaseModel form={form} defaults={defaults} onChange={(baseModel) => set({ baseModel })} />
				<Field label="most steps">
					<Input
						inputMode="numeric"
						placeholder={placeholder(defaults, "maxSteps")}
						value={form.maxSteps}
						onChange={(event) => set({ maxSteps: event.target.value })}
					/>
				</Field>
				<details>
					<summary className="py-1.5 text-soft text-xs">more settings</summary>
					<div className="mt-2 grid grid-cols-2 gap-2">
						{NUMBERS.filter(({ field }) => field !== "maxSteps").map(({ field, label }) => (
							<Field key={field} label={label}>
								<Input
									inputMode="decimal"
									placeholder={placeholder(defaults, field)}
									value={form[field]}
									onChange={(event) => set({ [field]: event.target.value })}
								/>
							</Field>
						))}
						<Field label="adapter targets">
							<Input
								placeholder={defaults?.lora.targets.join(", ")}
								value={form.targets}
								onChange={(event) => set({ targets: event.target.value })}
							/>
						</Field>
					</div>
				</details>
				<Estimate of={estimate} />
				<Button type="submit" tone="accent" disabled={starting || datasets.length === 0}>
					{starting ? "Starting…" : "Start"}
				</Button>
				<Alert>{problem}</Alert>
			</form>
		</Panel>
	);
}

function BaseModel({
	form,
	defaults,
	onChange,
}: {
	form: JobForm;
	defaults: JobDefaults | null;
	onChange: (name: string) => void;
}) {
	return (
		<Field label="base model">
			<Input
				list="base-models"
				placeholder={defaults?.base_model ?? "the default one"}
				value={form.baseModel}
				onChange={(event) => onChange(event.target.value)}
			/>
			<datalist id="base-models">
				{defaults?.base_models.map((name) => (
					<option key={name} value={name} />
				))}
			</datalist>
		</Field>
	);
}

function placeholder(defaults: JobDefaults | null, field: (typeof NUMBERS)[number]["field"]): string {
	if (!defaults) return "default";
	const values = {
		maxSteps: defaults.max_steps,
		learningRate: defaults.learning_rate,
		batchSize: defaults.batch_size,
		seqLen: defaults.seq_len,
		seed: defaults.seed,
		rank: defaults.lora.rank,
		alpha: defaults.lora.alpha,
		dropout: defaults.lora.dropout,
	};
	return String(values[field] ?? "default");
}

type Asked = { estimate: EstimateView | null; problem: string | null };

/** Asks what the request would cost, a moment after it changed. */
function useEstimate(body: JobBody | null): Asked {
	const [asked, setAsked] = useState<Asked>({ estimate: null, problem: null });
	const text = body && JSON.stringify(body);
	useEffect(() => {
		setAsked({ estimate: null, problem: null });
		if (!text) return;
		const abort = new AbortController();
		const ask = async () => {
			try {
				const options = { method: "POST", body: JSON.parse(text) as JobBody, signal: abort.signal };
				setAsked({ estimate: await call<EstimateView>("/finetune/estimate", options), problem: null });
			} catch (error) {
				if (!abort.signal.aborted) setAsked({ estimate: null, problem: describe(error) });
			}
		};
		const timer = setTimeout(() => void ask(), ASK_AFTER_MS);
		return () => {
			clearTimeout(timer);
			abort.abort();
		};
	}, [text]);
	return asked;
}

function Estimate({ of: { estimate, problem } }: { of: Asked }) {
	if (problem) return <p className="text-warn text-xs">{problem}</p>;
	if (!estimate) return null;
	const { seconds_low: low, seconds_high: high, memory_available_bytes: there } = estimate;
	return (
		<output className="block rounded-md bg-raised p-2 text-xs">
			about {seconds(estimate.seconds)}
			{low != null && high != null && ` (${seconds(low)} to ${seconds(high)})`} for {count(estimate.steps, "step")},{" "}
			{number(estimate.epochs)} times through the examples; {bytes(estimate.memory_bytes)} of memory
			{there != null && ` of ${bytes(there)}`}; {number(estimate.trainable_parameters)} numbers learn
			{!estimate.fits && <span className="block text-bad">{estimate.reason ?? "it does not fit here"}</span>}
		</output>
	);
}
