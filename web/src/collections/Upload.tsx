"use client";

import { useEffect, useState } from "react";
import { call, describe, type IngestAccepted, type IngestView } from "@/api/client";
import { usePolled } from "@/api/polling";
import { Alert, Button, Field, FileInput, Input, Panel, Refused, Status } from "@/ui";

/** Sends files to a collection and shows what becomes of each. */
export function Upload({
	namespace,
	collection,
	onDone,
}: {
	namespace: string;
	collection: string | null;
	onDone: () => void;
}) {
	const [name, setName] = useState("");
	const [files, setFiles] = useState<FileList | null>(null);
	const [ingest, setIngest] = useState<string | null>(null);
	const [problem, setProblem] = useState<string | null>(null);
	const [sending, setSending] = useState(false);
	const target = name || collection || "";

	const send = async () => {
		if (!files || !target) return;
		const form = new FormData();
		form.set("collection", target);
		form.set("namespace", namespace);
		for (const file of files) form.append("files", file);
		setSending(true);
		setProblem(null);
		try {
			const accepted = await call<IngestAccepted>("/ingest", {
				method: "POST",
				form,
				key: crypto.randomUUID(),
				timeoutMs: 10 * 60_000,
			});
			setIngest(accepted.ingest_id);
		} catch (error) {
			setProblem(describe(error));
		} finally {
			setSending(false);
		}
	};

	return (
		<Panel title="Upload">
			<div className="space-y-2">
				<Field label="collection">
					<Input placeholder={collection ?? "name"} value={name} onChange={(event) => setName(event.target.value)} />
				</Field>
				<Field label="files">
					<FileInput multiple onChange={(event) => setFiles(event.target.files)} />
				</Field>
				<Button tone="accent" disabled={!files?.length || !target || sending} onClick={() => void send()}>
					{sending ? "Sending…" : "Upload"}
				</Button>
				<Alert>{problem}</Alert>
				{ingest && <Progress id={ingest} onDone={onDone} />}
			</div>
		</Panel>
	);
}

function Progress({ id, onDone }: { id: string; onDone: () => void }) {
	const [ended, setEnded] = useState(false);
	const { data, error } = usePolled<IngestView>(ended ? null : `/ingest/${id}`, 700);
	const [last, setLast] = useState<IngestView | null>(null);
	useEffect(() => {
		if (!data) return;
		setLast(data);
		if (data.finished_at) {
			setEnded(true);
			onDone();
		}
	}, [data, onDone]);
	if (!last) return <Refused error={error} />;
	const total = last.documents ?? last.queued;
	const done = last.indexed + last.unchanged + last.failed;
	return (
		<div className="space-y-1" aria-live="polite">
			<progress className="w-full" max={total || 1} value={done} aria-label="documents done" />
			<p className="text-xs">
				<Status of={last.status} /> {done} of {total}: {last.indexed} indexed, {last.unchanged} unchanged, {last.failed}{" "}
				failed
			</p>
			{last.failures.map((failure) => (
				<p key={failure.document_id} className="text-bad text-xs">
					{failure.source}: {failure.error.message}
				</p>
			))}
		</div>
	);
}
