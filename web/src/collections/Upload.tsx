"use client";

import { useEffect, useState } from "react";
import { describe, type IngestAccepted, type IngestView, send } from "@/api/client";
import { usePolled } from "@/api/polling";
import { Alert, Button, Field, FileInput, Input, Panel, Refused, Status } from "@/ui";
import { leftOutWords } from "./leftOut";

/** Longer than this no upload takes. */
const SENDS_MS = 10 * 60_000;

/** Sends files to a collection and shows what becomes of each. */
export function Upload({
	namespace,
	collection,
	onSent,
	onDone,
}: {
	namespace: string;
	collection: string | null;
	/** Files are on their way into this collection, which may be a new one. */
	onSent: (collection: string) => void;
	onDone: () => void;
}) {
	const [name, setName] = useState("");
	const [files, setFiles] = useState<FileList | null>(null);
	const [ingest, setIngest] = useState<string | null>(null);
	const [problem, setProblem] = useState<string | null>(null);
	/** How much of the files is sent, from 0 to 1; null while nothing is being sent. */
	const [sent, setSent] = useState<number | null>(null);
	const sending = sent !== null;
	const target = name || collection || "";

	const upload = async () => {
		if (!files || !target) return;
		const form = new FormData();
		form.set("collection", target);
		form.set("namespace", namespace);
		for (const file of files) form.append("files", file);
		setSent(0);
		setProblem(null);
		try {
			const how = { key: crypto.randomUUID(), timeoutMs: SENDS_MS, onSent: setSent };
			const accepted = await send<IngestAccepted>("/ingest", form, how);
			setIngest(accepted.ingest_id);
			onSent(target);
		} catch (error) {
			setProblem(describe(error));
		} finally {
			setSent(null);
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
				<Button tone="accent" disabled={!files?.length || !target || sending} onClick={() => void upload()}>
					{sending ? "Sending…" : "Upload"}
				</Button>
				{sent !== null && (
					<div>
						<progress className="w-full" max={1} value={sent} aria-label="files sent" />
						<p className="text-soft text-xs tabular-nums">{Math.floor(sent * 100)} % sent</p>
					</div>
				)}
				<Alert>{problem}</Alert>
				{ingest && <Progress key={ingest} id={ingest} onDone={onDone} />}
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
	const leftOut = leftOutWords(last);
	return (
		<div className="space-y-1" aria-live="polite">
			<progress className="w-full" max={total || 1} value={done} aria-label="documents done" />
			<p className="text-xs">
				<Status of={last.status} /> {done} of {total}: {last.indexed} indexed, {last.unchanged} unchanged, {last.failed}{" "}
				failed
				{leftOut && ` · ${leftOut}`}
			</p>
			{last.notes?.map((noted) => (
				<p key={noted.document_id} className="text-soft text-xs">
					{noted.source}: {noted.notes.join("; ")}
				</p>
			))}
			{last.failures.map((failure) => (
				<p key={failure.document_id} className="text-bad text-xs">
					{failure.source}: {failure.error.message}
				</p>
			))}
		</div>
	);
}
