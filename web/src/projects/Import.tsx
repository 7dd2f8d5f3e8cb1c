"use client";

import { useRef, useState } from "react";
import { call, describe } from "@/api/client";
import type { ProjectAccepted } from "@/api/shapes";
import { Alert, Button, Field, FileInput, Input, Panel } from "@/ui";
import { useNamespace } from "./namespace";
import { inNamespace } from "./paths";

const PATIENCE_MS = 10 * 60_000;

/** Takes code in: a folder on the server, a repository, or an archive from here. The original is never touched. */
export function Import({ onImported }: { onImported: (id: string) => void }) {
	const namespace = useNamespace();
	const [source, setSource] = useState("");
	const [archive, setArchive] = useState<File | null>(null);
	const [sending, setSending] = useState(false);
	const [problem, setProblem] = useState<string | null>(null);
	const file = useRef<HTMLInputElement>(null);

	const send = async () => {
		const form = new FormData();
		if (archive) form.set("file", archive);
		if (namespace !== null) form.set("namespace", namespace);
		setSending(true);
		setProblem(null);
		try {
			const { project_id } = await call<ProjectAccepted>("/projects/import", {
				method: "POST",
				...(archive ? { form } : { body: { source: source.trim(), ...inNamespace(namespace) } }),
				key: crypto.randomUUID(),
				background: true,
				timeoutMs: PATIENCE_MS,
			});
			setSource("");
			setArchive(null);
			if (file.current) file.current.value = "";
			onImported(project_id);
		} catch (error) {
			setProblem(describe(error));
		} finally {
			setSending(false);
		}
	};

	return (
		<Panel title="Import">
			<form
				aria-label="import"
				className="space-y-2"
				onSubmit={(event) => {
					event.preventDefault();
					void send();
				}}
			>
				<Field label="folder on the server, or address of a git repository">
					<Input
						placeholder="/path/to/code or https://….git"
						value={source}
						disabled={archive !== null}
						onChange={(event) => setSource(event.target.value)}
					/>
				</Field>
				<Field label="or a zip archive">
					<FileInput
						ref={file}
						accept=".zip,application/zip"
						onChange={(event) => setArchive(event.target.files?.[0] ?? null)}
					/>
				</Field>
				<Button type="submit" tone="accent" disabled={sending || (!archive && !source.trim())}>
					{sending ? "Importing…" : "Import"}
				</Button>
				<Alert>{problem}</Alert>
			</form>
		</Panel>
	);
}
