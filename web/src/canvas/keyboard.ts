"use client";

import { useEffect } from "react";
import { useKeeping } from "./keeping";
import { useCanvas } from "./store";

/** Keys of the canvas, for the help text and for the listener. Ctrl is Cmd on a Mac. */
export const KEYS: { keys: string; does: string }[] = [
	{ keys: "Ctrl Z / Ctrl Shift Z", does: "undo, redo" },
	{ keys: "Ctrl C / Ctrl X / Ctrl V", does: "copy, cut, paste" },
	{ keys: "Ctrl D", does: "duplicate what is selected" },
	{ keys: "Ctrl A", does: "select everything" },
	{
		keys: "Ctrl G / Ctrl Shift G",
		does: "group what is selected, dissolve a group; a node that is dragged into one or out of it joins or leaves",
	},
	{ keys: "Ctrl S / Ctrl O", does: "save the canvas on the server, open one from there or from another tab" },
	{ keys: "Ctrl K", does: "search the canvas" },
	{ keys: "F2", does: "name the agent that is selected" },
	{ keys: "Ctrl Enter", does: "run the agent whose task is being typed" },
	{ keys: "Ctrl Shift Enter / Ctrl .", does: "run all agents that have a task, stop all" },
	{ keys: "Shift drag, Shift click", does: "select all in a frame, one more" },
	{ keys: "Delete", does: "remove what is selected" },
	{ keys: "Arrows", does: "move what is selected; a burst of presses is undone at once" },
	{ keys: "Tab, Enter", does: "go to the next node, select it" },
];

/** What a key asks of the canvas. `nothing`: the canvas does nothing, nor does the browser, which would save or open a page. */
export type Command =
	| "name"
	| "search"
	| "run all"
	| "stop all"
	| "save"
	| "open"
	| "undo"
	| "redo"
	| "copy"
	| "paste"
	| "cut"
	| "duplicate"
	| "group"
	| "dissolve"
	| "select all"
	| "nothing";

export type Pressed = Pick<KeyboardEvent, "key" | "ctrlKey" | "metaKey" | "shiftKey">;
/** `covered`: a dialog or a menu is in front of the canvas. `typing`: the key is for a field. `marked`: words are marked. */
export type Where = { covered: boolean; typing: boolean; marked: boolean };

/** What a key means where it was pressed; null where it is none of the canvas's. No key acts through what covers the canvas. Pure. */
export function commandOf(pressed: Pressed, { covered, typing, marked }: Where): Command | null {
	const anywhere = wherever(pressed);
	if (covered) return anywhere && "nothing";
	if (anywhere) return anywhere;
	if (typing) return null;
	if (pressed.key === "F2") return "name";
	const edit = editing(pressed);
	// Words that are marked, in an answer for instance, are what is copied then.
	return marked && (edit === "copy" || edit === "cut") ? null : edit;
}

/** Keys that mean the same in a field as beside it. */
function wherever({ key, ctrlKey, metaKey, shiftKey }: Pressed): Command | null {
	if (!ctrlKey && !metaKey) return null;
	switch (key.toLowerCase()) {
		case "k":
			return "search";
		case "enter":
			return shiftKey ? "run all" : null;
		case ".":
			return "stop all";
		case "s":
			return "save";
		case "o":
			return "open";
		default:
			return null;
	}
}

function editing({ key, ctrlKey, metaKey, shiftKey }: Pressed): Command | null {
	if (!ctrlKey && !metaKey) return null;
	switch (key.toLowerCase()) {
		case "z":
			return shiftKey ? "redo" : "undo";
		case "y":
			return "redo";
		case "c":
			return "copy";
		case "v":
			return "paste";
		case "x":
			return "cut";
		case "d":
			return "duplicate";
		case "g":
			return shiftKey ? "dissolve" : "group";
		case "a":
			return "select all";
		default:
			return null;
	}
}

/** What lies over the canvas while it is in the page: it is taken out when it closes. */
const COVERS = '[role="dialog"], [role="alertdialog"], [role="menu"]';

export function useKeyboard(onSearch: () => void): void {
	useEffect(() => {
		const canvas = useCanvas.getState;
		const actions: Record<Command, () => void> = {
			name: nameSelected,
			search: onSearch,
			"run all": () => void canvas().runAll(),
			"stop all": () => void canvas().stopAll(),
			save: () => void useKeeping.getState().save(),
			open: () => useKeeping.getState().ask({ kind: "open" }),
			undo: () => canvas().undo(),
			redo: () => canvas().redo(),
			copy: () => canvas().copy(),
			paste: () => canvas().paste(),
			cut: () => canvas().cut(),
			duplicate: () => {
				canvas().copy();
				canvas().paste();
			},
			group: () => canvas().group(),
			dissolve: () => canvas().ungroup(),
			"select all": () => canvas().select(canvas().history.present.nodes.map((node) => node.id)),
			nothing: () => {},
		};
		const onKey = (event: KeyboardEvent) => {
			const command = commandOf(event, {
				covered: document.querySelector(COVERS) !== null,
				typing: isTyping(event.target),
				marked: window.getSelection()?.isCollapsed === false,
			});
			if (command === null) return;
			event.preventDefault();
			actions[command]();
		};
		window.addEventListener("keydown", onKey);
		return () => window.removeEventListener("keydown", onKey);
	}, [onSearch]);
}

/** On the node where that is in sight, else in the settings at the side. */
function nameSelected(): void {
	const [id, ...more] = useCanvas.getState().selected;
	if (id === undefined || more.length > 0) return;
	const fields = [...document.querySelectorAll<HTMLInputElement>("[data-names]")].filter(
		(one) => one.dataset.names === id,
	);
	const field = fields.find(isInSight) ?? fields.at(-1);
	field?.focus();
	field?.select();
}

function isInSight(element: Element): boolean {
	const { left, top, width, height } = element.getBoundingClientRect();
	const at = document.elementFromPoint(left + width / 2, top + height / 2);
	return at === element;
}

function isTyping(target: EventTarget | null): boolean {
	return (
		target instanceof HTMLElement &&
		(target.isContentEditable || ["INPUT", "TEXTAREA", "SELECT"].includes(target.tagName))
	);
}
