"use client";

import { useEffect, useMemo, useState } from "react";
import { type DocumentView, describe } from "@/api/client";
import type { DeletionView, DocumentDetail } from "@/api/shapes";
import { DocumentReader } from "@/documents/DocumentReader";
import { readDocument } from "@/documents/read";
import { Alert, Dialog, Field, Select } from "@/ui";
import { bytes, count, moment } from "@/ui/words";
import { Origin } from "./Origin";
import { Remove } from "./Remove";

type Props = { document: DocumentView | null; onClose: () => void; onRemoved: (receipt: DeletionView) => void };

/** One document: its versions, their text, and a way to remove it. */
export function DocumentDialog({ document, onClose, onRemoved }: Props) {
	return (
		<Dialog wide open={document !== null} onClose={onClose} title={document?.title ?? document?.source ?? ""}>
			{document && <Body key={document.document_id} document={document} onRemoved={onRemoved} />}
		</Dialog>
	);
}

function Body({ document, onRemoved }: Pick<Props, "onRemoved"> & { document: DocumentView }) {
	const { document_id: id, namespace } = document;
	const [detail, setDetail] = useState<DocumentDetail | null>(null);
	const [problem, setProblem] = useState<string | null>(null);
	const [chosen, setChosen] = useState("");
	useEffect(() => {
		const abort = new AbortController();
		readDocument(id, namespace, abort.signal)
			.then(setDetail)
			.catch((error) => !abort.signal.aborted && setProblem(describe(error)));
		return () => abort.abort();
	}, [id, namespace]);
	const wanted = useMemo(() => ({ id, namespace, span: null }), [id, namespace]);
	const version = chosen || detail?.indexed_version || detail?.versions.at(-1)?.version;
	return (
		<div className="space-y-3">
			<Alert>{problem}</Alert>
			{detail && detail.versions.length > 0 && (
				<Field label={`versions: ${detail.versions.length}`}>
					<Select value={version} onChange={(event) => setChosen(event.target.value)}>
						{detail.versions.map((one) => (
							<option key={one.version} value={one.version}>
								{moment(one.created_at)}, {count(one.chunks, "chunk")}, {bytes(one.text_size_bytes)}
								{one.version === detail.indexed_version && ", the one that a search finds"}
							</option>
						))}
					</Select>
				</Field>
			)}
			<Origin source={document.source} of={detail?.source_versions?.find((one) => one.version === version)} />
			{version && <DocumentReader key={version} wanted={wanted} version={version} />}
			<Remove
				what="this document"
				path={`/documents/${encodeURIComponent(id)}?${new URLSearchParams({ namespace })}`}
				onRemoved={onRemoved}
			/>
		</div>
	);
}
