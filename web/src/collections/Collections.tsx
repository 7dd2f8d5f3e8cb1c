"use client";

import clsx from "clsx";
import { useState } from "react";
import { ApiError, type CollectionView, type DocumentView } from "@/api/client";
import { usePolled } from "@/api/polling";
import type { DeletionView, Items, Page } from "@/api/shapes";
import { homeNamespace, useSession } from "@/session/store";
import { Button, Empty, Field, Loading, Panel, SettledInput, Status, Table } from "@/ui";
import { count, moment } from "@/ui/words";
import { DocumentDialog } from "./DocumentDialog";
import { Remove, Removed } from "./Remove";
import { SearchBench } from "./SearchBench";
import { Upload } from "./Upload";

/** So many documents are on a page. */
const DOCUMENTS = 50;

/** What is known, by collection: documents, upload, and a bench to try searches on. */
export function Collections() {
	const home = useSession((s) => homeNamespace(s.session));
	const [named, setNamespace] = useState<string | null>(null);
	const namespace = named ?? home;
	const [chosen, setChosen] = useState<string | null>(null);
	/** Of the last removal: what it was of may be gone with it. */
	const [receipt, setReceipt] = useState<DeletionView | null>(null);
	const query = `namespace=${encodeURIComponent(namespace)}`;
	const collections = usePolled<Items<CollectionView>>(`/collections?${query}`, 5_000);
	const items = collections.data?.items ?? [];
	// One that is being made is chosen before it is there; one that was removed is chosen no longer.
	const name = (items.find((one) => one.name === chosen) ?? items[0])?.name ?? null;
	return (
		<div className="grid grid-cols-[minmax(0,1fr)] items-start gap-3 p-3 lg:grid-cols-[18rem_minmax(0,1fr)]">
			<h1 className="sr-only">Collections</h1>
			<div className="space-y-3">
				<Panel title="Collections">
					<Field label="namespace">
						<SettledInput
							value={namespace}
							fallback={home}
							onSettle={(next) => {
								setNamespace(next);
								setChosen(null);
							}}
						/>
					</Field>
					<ul className="mt-2">
						{items.map((one) => (
							<li key={one.physical_name}>
								<button
									type="button"
									aria-pressed={one.name === name}
									onClick={() => setChosen(one.name)}
									className={clsx(
										"w-full rounded px-2 py-1.5 text-left hover:bg-raised",
										one.name === name && "bg-raised",
									)}
								>
									<span className="block font-medium">{one.name}</span>
									<span className="block text-soft text-xs">
										{count(one.documents, "document")}, {count(one.chunks, "chunk")} · {one.embedding.model},{" "}
										{count(one.embedding.dimensions, "dimension")}
									</span>
								</button>
							</li>
						))}
					</ul>
					<Loading of={collections} />
					{collections.data && items.length === 0 && <Empty>No collections in {namespace}.</Empty>}
				</Panel>
				<Upload namespace={namespace} collection={name} onSent={setChosen} onDone={collections.refresh} />
				{receipt && (
					<Panel title="Receipt">
						<Removed receipt={receipt} />
					</Panel>
				)}
			</div>
			{name ? (
				<div className="min-w-0 space-y-3">
					<SearchBench key={`${namespace}/${name}`} namespace={namespace} collection={name} />
					<Documents
						key={`documents of ${namespace}/${name}`}
						namespace={namespace}
						collection={name}
						onRemoved={(removed) => {
							setReceipt(removed);
							collections.refresh();
						}}
					/>
				</div>
			) : (
				collections.data && <Empty>Upload files to make a collection.</Empty>
			)}
		</div>
	);
}

function Documents({
	namespace,
	collection,
	onRemoved,
}: {
	namespace: string;
	collection: string;
	onRemoved: (receipt: DeletionView) => void;
}) {
	/** Where the pages begin that were turned; the first one is not among them. */
	const [turned, setTurned] = useState<string[]>([]);
	const cursor = turned.at(-1);
	const query = new URLSearchParams({ namespace, collection, limit: String(DOCUMENTS), ...(cursor ? { cursor } : {}) });
	const documents = usePolled<Page<DocumentView>>(`/documents?${query}`, 5_000);
	const [open, setOpen] = useState<DocumentView | null>(null);
	// The last answer is kept while nobody answers, but not when the answer is that there is nothing any more.
	const gone = documents.error instanceof ApiError && documents.error.status === 404;
	const items = gone ? [] : documents.data?.items;
	const next = documents.data?.next_cursor;
	const removed = (receipt: DeletionView) => {
		setOpen(null);
		documents.refresh();
		onRemoved(receipt);
	};
	return (
		<Panel title="Documents">
			{!gone && <Loading of={documents} />}
			<Table head={["source", "status", "chunks", "updated"]}>
				{items?.map((one) => (
					<tr key={one.document_id}>
						<td className="break-all">
							<button type="button" className="hit text-left text-accent" onClick={() => setOpen(one)}>
								{one.source}
							</button>
							{one.error && <span className="block text-bad text-xs">{one.error.message}</span>}
						</td>
						<td>
							<Status of={one.status} />
						</td>
						<td className="tabular-nums">{one.chunks}</td>
						<td className="text-soft text-xs">{moment(one.updated_at)}</td>
					</tr>
				))}
			</Table>
			{items?.length === 0 && <Empty>No documents.</Empty>}
			{(turned.length > 0 || next) && (
				<div className="mt-2 flex justify-between">
					<Button disabled={turned.length === 0} onClick={() => setTurned(turned.slice(0, -1))}>
						Previous page
					</Button>
					<Button disabled={!next} onClick={() => next && setTurned([...turned, next])}>
						Next page
					</Button>
				</div>
			)}
			<div className="mt-3">
				<Remove
					key={`${namespace}/${collection}`}
					what={`the collection ${collection}`}
					path={`/collections/${encodeURIComponent(collection)}?${new URLSearchParams({ namespace })}`}
					onRemoved={removed}
				/>
			</div>
			<DocumentDialog document={open} onClose={() => setOpen(null)} onRemoved={removed} />
		</Panel>
	);
}
