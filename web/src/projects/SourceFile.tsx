"use client";

import clsx from "clsx";
import { useEffect, useRef, useState } from "react";
import { call, describe } from "@/api/client";
import type { FileText } from "@/api/shapes";
import { Dialog, Loading } from "@/ui";
import { count } from "@/ui/words";
import { usePathOf } from "./namespace";

export type Place = { file: string; line?: number };

/** Lines around the place that are drawn: a file may have very many. */
const AROUND = 200;

/** A file of the copy, opened at a line. */
export function SourceFile({ id, place, onClose }: { id: string; place: Place | null; onClose: () => void }) {
	return (
		<Dialog wide open={place !== null} onClose={onClose} title={place?.file ?? ""}>
			{place && <Lines key={`${place.file}:${place.line}`} id={id} place={place} />}
		</Dialog>
	);
}

function Lines({ id, place }: { id: string; place: Place }) {
	const pathOf = usePathOf(id);
	const [text, setText] = useState<string | null>(null);
	const [problem, setProblem] = useState<string | null>(null);
	const marked = useRef<HTMLLIElement>(null);
	useEffect(() => {
		const abort = new AbortController();
		call<FileText>(pathOf("/file", { path: place.file }), { signal: abort.signal })
			.then((file) => setText(file.text))
			.catch((error) => !abort.signal.aborted && setProblem(describe(error)));
		return () => abort.abort();
	}, [pathOf, place.file]);
	useEffect(() => {
		if (text !== null) marked.current?.scrollIntoView({ block: "center" });
	}, [text]);
	if (text === null) return <Loading of={{ data: null, error: problem }} />;
	const lines = text.split("\n");
	const at = place.line ?? 1;
	const first = Math.max(0, at - 1 - AROUND);
	return (
		// biome-ignore lint/a11y/noNoninteractiveTabindex: what scrolls must be reached by keyboard
		<div className="max-h-[60vh] overflow-auto rounded border border-line" tabIndex={0}>
			{first > 0 && <p className="px-2 text-soft text-xs">{count(first, "line")} above</p>}
			<ol className="font-mono text-xs">
				{lines.slice(first, at + AROUND).map((line, index) => {
					const number = first + index + 1;
					const here = number === place.line;
					return (
						<li
							key={number}
							ref={here ? marked : undefined}
							aria-current={here ? "location" : undefined}
							className={clsx("flex gap-3 whitespace-pre px-2", here && "bg-raised font-semibold")}
						>
							<span className="w-10 shrink-0 select-none text-right text-soft tabular-nums">{number}</span>
							<span>{line}</span>
						</li>
					);
				})}
			</ol>
			{lines.length > at + AROUND && (
				<p className="px-2 text-soft text-xs">{count(lines.length - at - AROUND, "line")} below</p>
			)}
		</div>
	);
}
