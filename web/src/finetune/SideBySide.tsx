"use client";

import { useRef, useState } from "react";
import { call, describe } from "@/api/client";
import type { ChatDone, ModelVersionView } from "@/api/shapes";
import { Written } from "@/runs/Written";
import { Alert, Button, Field, TextArea } from "@/ui";
import { count, lasted } from "@/ui/words";

const MOST_TOKENS = 256;
const PATIENCE_MS = 10 * 60_000;
/** How an answer ended that its model did not end. */
const ENDS: Record<string, string> = { length: ", cut off", repetition: ", ended: it said the same over and over" };

type Side = { text: string; note: string } | { problem: string } | null;

/** The same words to a version and to the model that it was made from, both without chance. */
export function SideBySide({ version }: { version: ModelVersionView }) {
	const [prompt, setPrompt] = useState("");
	const [busy, setBusy] = useState(false);
	const [sides, setSides] = useState<{ tuned: Side; base: Side }>({ tuned: null, base: null });
	/** Whether every character shows that was said, which is what was trained. */
	const [raw, setRaw] = useState(false);
	const round = useRef(0);

	const ask = async () => {
		if (!prompt.trim()) return;
		round.current += 1;
		const mine = round.current;
		setBusy(true);
		setSides({ tuned: null, base: null });
		// One after the other: on one machine each would only slow the other down.
		for (const [side, model] of [
			["tuned", version.chat_model],
			["base", version.base_model],
		] as const) {
			const said = await say(model, prompt);
			if (round.current !== mine) return;
			setSides((now) => ({ ...now, [side]: said }));
		}
		setBusy(false);
	};

	return (
		<form
			className="space-y-3"
			onSubmit={(event) => {
				event.preventDefault();
				void ask();
			}}
		>
			<Field label="words for both">
				<TextArea rows={3} value={prompt} onChange={(event) => setPrompt(event.target.value)} />
			</Field>
			<div className="flex flex-wrap items-center gap-3">
				<Button type="submit" tone="accent" disabled={busy || !prompt.trim()}>
					{busy ? "Asking…" : "Ask both"}
				</Button>
				<label className="hit gap-1.5 text-xs">
					<input type="checkbox" checked={raw} onChange={(event) => setRaw(event.target.checked)} />
					show answers as they were written
				</label>
			</div>
			<div className="grid gap-3 md:grid-cols-2" aria-live="polite">
				<Column title={`${version.model}@${version.version}`} side={sides.tuned} raw={raw} />
				<Column title={version.base_model} side={sides.base} raw={raw} />
			</div>
		</form>
	);
}

async function say(model: string, content: string): Promise<Side> {
	const began = performance.now();
	try {
		const body = {
			// Both lie on this machine, whatever else answers chats by default.
			provider: "local",
			model,
			messages: [{ role: "user", content }],
			temperature: 0,
			max_tokens: MOST_TOKENS,
			stream: false,
		};
		const done = await call<ChatDone>("/chat", { method: "POST", body, timeoutMs: PATIENCE_MS });
		const took = lasted(performance.now() - began);
		const cut = ENDS[done.finish_reason] ?? "";
		return { text: done.text, note: `${count(done.usage.completion_tokens, "token")} in ${took}${cut}` };
	} catch (error) {
		return { problem: describe(error) };
	}
}

function Column({ title, side, raw }: { title: string; side: Side; raw: boolean }) {
	return (
		<section className="min-w-0 rounded-md border border-line p-3" aria-label={title}>
			<h3 className="mb-1 break-words font-semibold">{title}</h3>
			{side && "problem" in side && <Alert>{side.problem}</Alert>}
			{side && "text" in side && (
				<>
					{raw ? <p className="whitespace-pre-wrap break-words">{side.text}</p> : <Written text={side.text} />}
					<p className="mt-2 text-soft text-xs">{side.note}</p>
				</>
			)}
		</section>
	);
}
