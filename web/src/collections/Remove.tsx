"use client";

import { useEffect, useRef, useState } from "react";
import { call, describe } from "@/api/client";
import { usePolled } from "@/api/polling";
import type { DeletionView } from "@/api/shapes";
import { Alert, Button } from "@/ui";
import { count, number } from "@/ui/words";

type Props = { what: string; path: string; onRemoved: (receipt: DeletionView) => void };

/** Removes something after it was said twice, and shows the receipt of what went from where. */
export function Remove({ what, path, onRemoved }: Props) {
	const [asked, setAsked] = useState(false);
	const [busy, setBusy] = useState(false);
	const [problem, setProblem] = useState<string | null>(null);
	const [receipt, setReceipt] = useState<DeletionView | null>(null);
	/** The same removal when it is tried again after a lost answer. */
	const key = useRef<string | null>(null);

	const remove = async () => {
		key.current ??= crypto.randomUUID();
		setBusy(true);
		setProblem(null);
		try {
			const options = { method: "DELETE", key: key.current, timeoutMs: 60_000 };
			setReceipt(await call<DeletionView>(path, options));
			key.current = null;
		} catch (error) {
			setProblem(describe(error));
		} finally {
			setBusy(false);
		}
	};

	if (receipt) return <Receipt first={receipt} onDone={onRemoved} />;
	return (
		<div className="flex flex-wrap items-center gap-2">
			{asked ? (
				<>
					<span>Remove {what} for good?</span>
					<Button tone="danger" disabled={busy} onClick={() => void remove()}>
						{busy ? "Removing…" : "Remove"}
					</Button>
					<Button disabled={busy} onClick={() => setAsked(false)}>
						Keep
					</Button>
				</>
			) : (
				<Button tone="danger" onClick={() => setAsked(true)}>
					Remove {what}
				</Button>
			)}
			<Alert>{problem}</Alert>
		</div>
	);
}

function Receipt({ first, onDone }: { first: DeletionView; onDone: (receipt: DeletionView) => void }) {
	const [done, setDone] = useState(first.status === "done");
	const path = `/deletions/${encodeURIComponent(first.deletion_id)}`;
	const { data } = usePolled<DeletionView>(done ? null : path, 1_000);
	const [last, setLast] = useState(first);
	const told = useRef(onDone);
	told.current = onDone;
	useEffect(() => {
		if (!data) return;
		setLast(data);
		if (data.status === "done") setDone(true);
	}, [data]);
	useEffect(() => {
		if (done) told.current(last);
	}, [done, last]);
	return <Removed receipt={last} />;
}

/** What went from where. */
export function Removed({ receipt }: { receipt: DeletionView }) {
	const { status, documents, total, vectors, keywords, tables, rows } = receipt;
	return (
		<output className="block rounded-md bg-raised p-3">
			{status === "done" ? "Gone" : "Going"}: {count(documents, "document")}
			{total != null && ` of ${number(total)}`}, {count(vectors, "vector")}, {count(keywords, "chunk")} of the keyword
			index
			{tables > 0 && `, ${count(tables, "table")} with ${count(rows, "row")}`}.
		</output>
	);
}
