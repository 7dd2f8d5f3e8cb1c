"use client";

import { useEffect, useState } from "react";
import { type CanvasEntry, describe } from "@/api/client";
import { Alert, Button, Dialog, Empty, Field, Input } from "@/ui";
import { bytes, count, moment } from "@/ui/words";
import { useKeeping } from "./keeping";
import { idFrom, idProblem, list } from "./kept";
import { ofOtherTabs } from "./saved";
import { useCanvas } from "./store";

/** The dialogs of canvases that the server keeps. */
export function Kept() {
	const question = useKeeping((s) => s.question);
	const close = () => useKeeping.getState().ask(null);
	return (
		<>
			<Dialog open={question?.kind === "id"} onClose={close} title="Keep on the server">
				<NewId />
			</Dialog>
			<Dialog open={question?.kind === "open"} onClose={close} title="Open a canvas">
				<Choice />
			</Dialog>
			<Dialog open={question?.kind === "overtaken"} onClose={close} title="There is another one">
				{question?.kind === "overtaken" && <Overtaken id={question.id} />}
			</Dialog>
		</>
	);
}

function NewId() {
	const { name, namespace } = useCanvas((s) => s.history.present);
	const { problem, busy } = useKeeping();
	const [id, setId] = useState(() => idFrom(name));
	const wrong = id === "" ? null : idProblem(id);
	return (
		<form
			className="space-y-3"
			onSubmit={(event) => {
				event.preventDefault();
				if (!idProblem(id)) void useKeeping.getState().saveAs(id);
			}}
		>
			<Field label={`id in the namespace ${namespace}`}>
				<Input
					className="font-mono"
					value={id}
					maxLength={63}
					aria-invalid={wrong !== null}
					onChange={(event) => setId(event.target.value)}
				/>
			</Field>
			<Alert>{wrong ?? problem}</Alert>
			<Button type="submit" tone="accent" disabled={busy || idProblem(id) !== null}>
				Save
			</Button>
		</form>
	);
}

function Overtaken({ id }: { id: string }) {
	const namespace = useCanvas((s) => s.history.present.namespace);
	const { problem, busy } = useKeeping();
	const { overwrite, open, saveCopy } = useKeeping.getState();
	return (
		<div className="space-y-3">
			<p>
				The server has another <span className="font-mono">{id}</span> than the one that this was made from. What is on
				the screen is not saved yet.
			</p>
			<Alert>{problem}</Alert>
			<div className="flex flex-wrap gap-2">
				<Button tone="accent" disabled={busy} onClick={() => void saveCopy(id)}>
					Keep as a copy
				</Button>
				<Button disabled={busy} onClick={() => void open(namespace, id)}>
					Open theirs
				</Button>
				<Button tone="danger" disabled={busy} onClick={() => void overwrite(id)}>
					Overwrite
				</Button>
			</div>
		</div>
	);
}

function Choice() {
	const namespace = useCanvas((s) => s.history.present.namespace);
	const { problem, busy } = useKeeping();
	const [from, setFrom] = useState<string | null>(null);
	const [next, setNext] = useState<string | null>(null);
	const [found, setFound] = useState<CanvasEntry[] | null>(null);
	const [refused, setRefused] = useState<string | null>(null);

	useEffect(() => {
		const abort = new AbortController();
		list(namespace, from, abort.signal)
			.then(({ items, next_cursor }) => {
				setFound((before) => (from === null ? items : [...(before ?? []), ...items]));
				setNext(next_cursor ?? null);
			})
			.catch((error) => !abort.signal.aborted && setRefused(describe(error)));
		return () => abort.abort();
	}, [namespace, from]);

	return (
		<div className="space-y-3">
			<p className="text-soft">
				Those that the server keeps, of the namespace <span className="font-mono">{namespace}</span>.
			</p>
			<Alert>{refused ?? problem}</Alert>
			{found === null && !refused && <p className="text-soft">Reading…</p>}
			{found?.length === 0 && <Empty>None is kept here yet.</Empty>}
			<ul aria-label="canvases of the server" className="space-y-1">
				{found?.map((entry) => (
					<li key={entry.canvas_id}>
						<Button
							className="w-full flex-wrap justify-between! text-left"
							disabled={busy}
							onClick={() => void useKeeping.getState().open(entry.namespace, entry.canvas_id)}
						>
							<span className="min-w-0 break-words">
								{entry.name || "Untitled"} <span className="font-mono font-normal text-soft">{entry.canvas_id}</span>
							</span>
							<span className="font-normal text-soft text-xs">
								<time dateTime={entry.saved_at}>{moment(entry.saved_at)}</time> · revision {entry.revision} ·{" "}
								{bytes(entry.size_bytes)}
							</span>
						</Button>
					</li>
				))}
			</ul>
			{next && <Button onClick={() => setFrom(next)}>More</Button>}
			<OfOtherTabs />
		</div>
	);
}

/** What other tabs of this browser have on their screens, or had when they were closed. */
function OfOtherTabs() {
	const [found] = useState(ofOtherTabs);
	const { reopen, say } = useCanvas.getState();
	if (found.length === 0) return null;
	return (
		<>
			<p className="text-soft">Those that other tabs of this browser have, or had when they were closed.</p>
			<ul aria-label="canvases of other tabs" className="space-y-1">
				{found.map(({ key, at, canvas }) => (
					<li key={key}>
						<Button
							className="w-full flex-wrap justify-between! text-left"
							onClick={() => {
								reopen(canvas);
								useKeeping.getState().ask(null);
								say("opened: undo brings back what was here");
							}}
						>
							<span className="min-w-0 break-words">{canvas.document.name || "Untitled"}</span>
							<span className="font-normal text-soft text-xs">
								{at > 0 && <>{moment(new Date(at).toISOString())} · </>}
								{count(canvas.document.nodes.length, "node")}
							</span>
						</Button>
					</li>
				))}
			</ul>
		</>
	);
}
