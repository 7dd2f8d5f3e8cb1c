"use client";

import clsx from "clsx";
import { useState } from "react";
import type { CollectionView, DocumentView } from "@/api/client";
import { usePolled } from "@/api/polling";
import { Empty, Field, Input, Panel, Status } from "@/ui";
import { SearchBench } from "./SearchBench";
import { Upload } from "./Upload";

/** What is known, by collection: documents, upload, and a bench to try searches on. */
export function Collections() {
	const [namespace, setNamespace] = useState("default");
	const [chosen, setChosen] = useState<string | null>(null);
	const query = `namespace=${encodeURIComponent(namespace)}`;
	const collections = usePolled<{ items: CollectionView[] }>(`/collections?${query}`, 5_000);
	const name = chosen ?? collections.data?.items[0]?.name ?? null;
	return (
		<div className="grid gap-3 p-3 lg:grid-cols-[18rem_1fr]">
			<div className="space-y-3">
				<Panel title="Collections">
					<Field label="namespace">
						<Input
							defaultValue={namespace}
							onBlur={(event) => {
								setNamespace(event.target.value.trim() || "default");
								setChosen(null);
							}}
						/>
					</Field>
					<ul className="mt-2">
						{collections.data?.items.map((one) => (
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
										{one.documents} documents, {one.chunks} chunks · {one.embedding.model}, {one.embedding.dimensions}
									</span>
								</button>
							</li>
						))}
					</ul>
					{collections.data?.items.length === 0 && <Empty>No collections in {namespace}.</Empty>}
				</Panel>
				<Upload namespace={namespace} collection={name} onDone={collections.refresh} />
			</div>
			{name ? (
				<div className="space-y-3">
					<SearchBench key={`${namespace}/${name}`} namespace={namespace} collection={name} />
					<Documents namespace={namespace} collection={name} />
				</div>
			) : (
				<Empty>Upload files to make a collection.</Empty>
			)}
		</div>
	);
}

function Documents({ namespace, collection }: { namespace: string; collection: string }) {
	const path = `/documents?${new URLSearchParams({ namespace, collection, limit: "200" })}`;
	const documents = usePolled<{ items: DocumentView[] }>(path, 5_000);
	return (
		<Panel title="Documents">
			<table className="w-full">
				<thead>
					<tr className="text-left text-soft text-xs">
						<th>source</th>
						<th>status</th>
						<th className="text-right">chunks</th>
						<th className="pl-3">updated</th>
					</tr>
				</thead>
				<tbody>
					{documents.data?.items.map((one) => (
						<tr key={one.document_id} className="border-line border-t align-top">
							<td className="break-all py-1">
								{one.source}
								{one.error && <span className="block text-bad text-xs">{one.error.message}</span>}
							</td>
							<td className="py-1">
								<Status of={one.status} />
							</td>
							<td className="py-1 text-right tabular-nums">{one.chunks}</td>
							<td className="py-1 pl-3 text-soft text-xs">{new Date(one.updated_at).toLocaleString()}</td>
						</tr>
					))}
				</tbody>
			</table>
			{documents.data?.items.length === 0 && <Empty>No documents.</Empty>}
		</Panel>
	);
}
