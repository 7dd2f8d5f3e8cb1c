"use client";

import {
	AlignStartVertical,
	CirclePlay,
	CircleStop,
	CloudDownload,
	CloudUpload,
	Copy,
	Download,
	FilePlus,
	Group,
	Keyboard,
	Redo2,
	Search,
	Undo2,
	Ungroup,
	Upload,
} from "lucide-react";
import { useRef, useState } from "react";
import { isGoing, useRuns } from "@/runs/store";
import { Button, Dialog, IconButton, Input, Menu, SettledInput } from "@/ui";
import { download } from "@/ui/download";
import { Beginnings } from "./Beginnings";
import { type Alignment, type Axis, emptyCanvas } from "./document";
import { leftOut, sharedCanvas } from "./exchange";
import { useKeeping } from "./keeping";
import { KEYS } from "./keyboard";
import { useCanvas } from "./store";
import { takeFile } from "./take";

const ARRANGEMENTS: { label: string; how: Alignment | Axis }[] = [
	{ label: "left edges", how: "left" },
	{ label: "centers", how: "center" },
	{ label: "right edges", how: "right" },
	{ label: "top edges", how: "top" },
	{ label: "middles", how: "middle" },
	{ label: "bottom edges", how: "bottom" },
	{ label: "equal gaps across", how: "x" },
	{ label: "equal gaps down", how: "y" },
];

export function Toolbar({ onSearch }: { onSearch: () => void }) {
	const document = useCanvas((s) => s.history.present);
	const past = useCanvas((s) => s.history.past.length);
	const future = useCanvas((s) => s.history.future.length);
	const { undo, redo, group, ungroup, arrange, copy, paste, edit, nudge, replace, say } = useCanvas.getState();
	const file = useRef<HTMLInputElement>(null);
	const [dialog, setDialog] = useState<"templates" | "keys" | null>(null);

	const give = () => {
		const { text, keys } = sharedCanvas(document);
		download(`${document.name || "canvas"}.json`, text, "application/json");
		if (keys > 0) say(`exported${leftOut(keys)}`);
	};

	return (
		<div
			role="toolbar"
			aria-label="canvas tools"
			className="@container flex flex-wrap items-center gap-1 border-line border-b bg-surface px-2 py-1 [&_button]:px-2"
		>
			<Input
				aria-label="name of the canvas"
				title={document.name}
				className="min-w-0 max-w-44 grow text-ellipsis basis-24 border-transparent font-semibold max-lg:max-w-32"
				value={document.name}
				maxLength={120}
				onChange={({ target }) => nudge("name of the canvas", (now) => ({ ...now, name: target.value }))}
			/>
			<SettledInput
				aria-label="namespace"
				title="The namespace whose tools and collections are used"
				className="w-28! font-mono text-xs max-lg:w-24!"
				value={document.namespace}
				onSettle={(namespace) => {
					if (/^[a-z0-9][a-z0-9-]{0,62}$/.test(namespace)) return edit((now) => ({ ...now, namespace }));
					say("a namespace is 1 to 63 of a-z, 0-9 and -");
					return false;
				}}
			/>
			<Rule />
			<IconButton label="undo" disabled={past === 0} onClick={undo}>
				<Undo2 size={16} aria-hidden />
			</IconButton>
			<IconButton label="redo" disabled={future === 0} onClick={redo}>
				<Redo2 size={16} aria-hidden />
			</IconButton>
			<Rule />
			<IconButton
				label="duplicate"
				onClick={() => {
					copy();
					paste();
				}}
			>
				<Copy size={16} aria-hidden />
			</IconButton>
			<IconButton label="group" onClick={group}>
				<Group size={16} aria-hidden />
			</IconButton>
			<IconButton label="dissolve group" onClick={ungroup}>
				<Ungroup size={16} aria-hidden />
			</IconButton>
			<Menu
				label="align"
				icon={<AlignStartVertical size={16} aria-hidden />}
				items={ARRANGEMENTS.map(({ label, how }) => ({ label, act: () => arrange(how) }))}
			/>
			<Rule />
			<IconButton label="search" onClick={onSearch}>
				<Search size={16} aria-hidden />
			</IconButton>
			<IconButton label="keys" onClick={() => setDialog("keys")}>
				<Keyboard size={16} aria-hidden />
			</IconButton>
			<Rule />
			<Together />
			<span className="ml-auto flex flex-wrap gap-1">
				<Button onClick={() => setDialog("templates")}>Templates</Button>
				<IconButton label="new canvas" onClick={() => replace(emptyCanvas())}>
					<FilePlus size={16} aria-hidden />
				</IconButton>
				<IconButton label="save on the server" onClick={() => void useKeeping.getState().save()}>
					<CloudUpload size={16} aria-hidden />
				</IconButton>
				<IconButton label="open from the server" onClick={() => useKeeping.getState().ask({ kind: "open" })}>
					<CloudDownload size={16} aria-hidden />
				</IconButton>
				<IconButton label="import" onClick={() => file.current?.click()}>
					<Upload size={16} aria-hidden />
				</IconButton>
				<IconButton label="export" onClick={give}>
					<Download size={16} aria-hidden />
				</IconButton>
			</span>
			<input
				ref={file}
				type="file"
				accept="application/json,.json"
				aria-label="canvas file"
				hidden
				onChange={(event) => {
					const chosen = event.target.files?.[0];
					if (chosen) void takeFile(chosen);
					event.target.value = "";
				}}
			/>
			<Dialog open={dialog === "templates"} onClose={() => setDialog(null)} title="Begin with">
				<Beginnings onChosen={() => setDialog(null)} />
			</Dialog>
			<Dialog open={dialog === "keys"} onClose={() => setDialog(null)} title="Keys">
				<dl className="grid grid-cols-[auto_1fr] gap-x-4 gap-y-1">
					{KEYS.map(({ keys, does }) => (
						<div key={keys} className="contents">
							<dt className="font-mono text-xs">{keys}</dt>
							<dd>{does}</dd>
						</div>
					))}
				</dl>
			</Dialog>
		</div>
	);
}

/** Between what belongs together and what does not. */
function Rule() {
	return <span aria-hidden className="mx-0.5 h-5 w-px bg-line max-lg:hidden" />;
}

/** Starts and ends everything at once. */
function Together() {
	const { runAll, stopAll } = useCanvas.getState();
	const hasAgents = useCanvas((s) => s.history.present.nodes.some((node) => node.kind === "agent"));
	const runOf = useCanvas((s) => s.runOf);
	const isAnyGoing = useRuns((s) => Object.values(runOf).some((runId) => isGoing(s.runs[runId])));
	return (
		<>
			<IconButton
				label="run all"
				tone={hasAgents ? "accent" : "quiet"}
				disabled={!hasAgents}
				onClick={() => void runAll()}
			>
				<CirclePlay size={16} aria-hidden />
				<span className="@max-[950px]:hidden">Run all</span>
			</IconButton>
			<IconButton label="stop all" disabled={!isAnyGoing} onClick={() => void stopAll()}>
				<CircleStop size={16} aria-hidden />
			</IconButton>
		</>
	);
}
