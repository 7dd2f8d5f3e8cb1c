"use client";

import { useMemo, useState } from "react";
import { call, type DeadLetterEntry, describe } from "@/api/client";
import { usePolled } from "@/api/polling";
import type { Items } from "@/api/shapes";
import { Alert, Button, Dialog, Empty, Loading, Panel, Status } from "@/ui";
import { anyCut, LETTERS, placeOf } from "./letters";

/** What could not be handled, and what may become of it: sent again, or marked as needing nothing. */
export function DeadLetters() {
	const [limit, setLimit] = useState<number>(LETTERS.first);
	const page = usePolled<Items<DeadLetterEntry>>(`/dlq?limit=${limit}`, 5_000);
	const { data, refresh } = page;
	const isCut = anyCut(data?.items ?? [], limit);
	const [problem, setProblem] = useState<string | null>(null);
	/** The one that is about to be dropped. */
	const [asked, setAsked] = useState<DeadLetterEntry | null>(null);
	// Those that somebody has to look at stand above those that were handled.
	const letters = useMemo(
		() => [...(data?.items ?? [])].reverse().sort((a, b) => Number(b.status === "open") - Number(a.status === "open")),
		[data],
	);
	const act = async (id: string, what: "redrive" | "drop") => {
		setAsked(null);
		try {
			await call(`/dlq/${encodeURIComponent(id)}/${what}`, { method: "POST", body: {} });
			setProblem(null);
		} catch (error) {
			setProblem(describe(error));
		}
		refresh();
	};
	return (
		<Panel title="Dead letters">
			<Loading of={page} />
			<Alert>{problem}</Alert>
			{data?.items.length === 0 && <Empty>None: everything could be handled.</Empty>}
			<ul aria-label="dead letters">
				{letters.map((letter) => (
					<li key={letter.id} className="border-line border-t py-2 first:border-0">
						<p className="flex flex-wrap items-center gap-x-2">
							<Status of={letter.status} />
							<span className="break-words font-medium">{letter.reason}</span>
						</p>
						<p className="break-all text-soft text-xs">
							<span className="font-mono">{letter.topic}</span>, partition {letter.partition}, offset {letter.offset} ·{" "}
							<span className="font-mono">{letter.code}</span>
						</p>
						{letter.status === "open" && (
							<div className="mt-1 flex gap-2">
								<Button aria-label={`Redrive ${placeOf(letter)}`} onClick={() => void act(letter.id, "redrive")}>
									Redrive
								</Button>
								<Button tone="danger" aria-label={`Drop ${placeOf(letter)}`} onClick={() => setAsked(letter)}>
									Drop…
								</Button>
							</div>
						)}
					</li>
				))}
			</ul>
			{isCut && (
				<div className="mt-2 flex flex-wrap items-center gap-2">
					<p className="text-soft text-xs">The newest {limit} of each topic.</p>
					{limit < LETTERS.most && <Button onClick={() => setLimit(LETTERS.most)}>Show older ones</Button>}
				</div>
			)}
			<Dialog
				open={asked !== null}
				onClose={() => setAsked(null)}
				title="Drop this record?"
				close="Keep it"
				actions={
					asked && (
						<>
							<Button tone="accent" onClick={() => void act(asked.id, "redrive")}>
								Redrive
							</Button>
							<Button tone="danger" onClick={() => void act(asked.id, "drop")}>
								Drop
							</Button>
						</>
					)
				}
			>
				{asked && <BeforeItGoes letter={asked} />}
			</Dialog>
		</Panel>
	);
}

function BeforeItGoes({ letter }: { letter: DeadLetterEntry }) {
	return (
		<div className="space-y-3">
			<p className="break-words">
				<span className="break-all font-medium font-mono">{placeOf(letter)}</span>
				<span className="block text-soft">{letter.reason}</span>
			</p>
			<p>
				Nothing will handle it then: it is marked as needing nothing, and this page can't take that back. <i>Redrive</i>{" "}
				sends its original bytes to the topic again, which helps once the reason is mended.
			</p>
		</div>
	);
}
