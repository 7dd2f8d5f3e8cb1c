"use client";

import { useRef, useState } from "react";
import { ApiError, call, describe, type FieldError } from "@/api/client";
import type { Polled } from "@/api/polling";
import type { DatasetFormat, DatasetView, Page } from "@/api/shapes";
import { Alert, Button, Empty, Field, FileInput, Input, Loading, Panel, Select } from "@/ui";
import { bytes, count, number } from "@/ui/words";

const FORMATS: { value: DatasetFormat; label: string }[] = [
	{ value: "sft", label: "sft: prompt, completion" },
	{ value: "dpo", label: "dpo: prompt, chosen, rejected" },
	{ value: "chat", label: "chat: messages" },
];
const MOST_SHOWN = 100;

/** The sets of examples that are there, and a form to hand in another. */
export function Datasets({ page }: { page: Polled<Page<DatasetView>> }) {
	return (
		<Panel title="Datasets">
			{/* biome-ignore lint/a11y/noNoninteractiveTabindex: what scrolls must be reached by keyboard */}
			<ul aria-label="datasets" tabIndex={0} className="mb-3 max-h-80 overflow-auto">
				{page.data?.items.map((one) => (
					<li key={`${one.name}/${one.sha256}`} className="border-line border-b py-1.5 last:border-0">
						<span className="block break-words font-medium">{one.name}</span>
						<span className="block text-soft text-xs">
							{one.format} · {number(one.train_examples)} to learn from, {number(one.eval_examples)} held out
							{one.duplicates > 0 && `, ${count(one.duplicates, "duplicate")} left out`} · {bytes(one.size_bytes)}
						</span>
						{one.tokens && (
							<span className="block text-soft text-xs">
								tokens an example: {number(one.tokens.min)} to {number(one.tokens.max)}, half below{" "}
								{number(one.tokens.p50)}
							</span>
						)}
						{one.warnings.length > 0 && (
							<details className="text-warn text-xs">
								<summary className="py-1.5">{count(one.warnings.length, "warning")}</summary>
								<ul>
									{one.warnings.slice(0, MOST_SHOWN).map((warning) => (
										<li key={`${warning.line} ${warning.reason}`}>
											{warning.line !== null && `line ${warning.line}: `}
											{warning.reason}
										</li>
									))}
								</ul>
							</details>
						)}
					</li>
				))}
			</ul>
			<Loading of={page} />
			{page.data?.items.length === 0 && <Empty>No datasets: upload a file of examples.</Empty>}
			<UploadDataset onDone={page.refresh} />
		</Panel>
	);
}

type Refusal = { message: string; lines: FieldError[] };

function UploadDataset({ onDone }: { onDone: () => void }) {
	const [name, setName] = useState("");
	const [format, setFormat] = useState<DatasetFormat>("sft");
	const [file, setFile] = useState<File | null>(null);
	const [sending, setSending] = useState(false);
	const [refused, setRefused] = useState<Refusal | null>(null);
	const [taken, setTaken] = useState<DatasetView | null>(null);
	const input = useRef<HTMLInputElement>(null);

	const send = async () => {
		if (!file) return;
		const form = new FormData();
		form.set("name", name.trim());
		form.set("format", format);
		form.set("file", file);
		setSending(true);
		setRefused(null);
		setTaken(null);
		try {
			const key = crypto.randomUUID();
			setTaken(await call<DatasetView>("/finetune/datasets", { method: "POST", form, key, timeoutMs: 10 * 60_000 }));
			setFile(null);
			if (input.current) input.current.value = "";
			onDone();
		} catch (error) {
			const lines = error instanceof ApiError ? error.fields : [];
			setRefused({ message: describe(error), lines });
		} finally {
			setSending(false);
		}
	};

	return (
		<form
			aria-label="new dataset"
			className="space-y-2"
			onSubmit={(event) => {
				event.preventDefault();
				void send();
			}}
		>
			<Field label="name">
				<Input required maxLength={120} value={name} onChange={(event) => setName(event.target.value)} />
			</Field>
			<Field label="format">
				<Select value={format} onChange={(event) => setFormat(event.target.value as DatasetFormat)}>
					{FORMATS.map(({ value, label }) => (
						<option key={value} value={value}>
							{label}
						</option>
					))}
				</Select>
			</Field>
			<Field label="examples, one JSON object a line (.jsonl)">
				<FileInput
					ref={input}
					accept=".jsonl,.ndjson,application/x-ndjson,application/jsonl"
					onChange={(event) => setFile(event.target.files?.[0] ?? null)}
				/>
			</Field>
			<Button type="submit" tone="accent" disabled={!file || !name.trim() || sending}>
				{sending ? "Checking…" : "Upload"}
			</Button>
			{taken && <output className="block text-good">{count(taken.examples, "example")} taken in.</output>}
			{refused && (
				<div>
					<Alert>{refused.message}</Alert>
					{refused.lines.length > 0 && (
						// biome-ignore lint/a11y/noNoninteractiveTabindex: what scrolls must be reached by keyboard
						<ol aria-label="what is wrong, by line" tabIndex={0} className="mt-1 max-h-60 overflow-auto text-xs">
							{refused.lines.slice(0, MOST_SHOWN).map((line) => (
								<li key={`${line.field} ${line.reason}`} className="border-line border-b py-0.5 last:border-0">
									<span className="font-mono">{line.field}</span>: {line.reason}
								</li>
							))}
						</ol>
					)}
				</div>
			)}
		</form>
	);
}
