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

export function useKeyboard(onSearch: () => void): void {
	useEffect(() => {
		const onKey = (event: KeyboardEvent) => {
			if (event.key === "F2" && !isTyping(event.target)) {
				event.preventDefault();
				nameSelected();
				return;
			}
			const command = event.ctrlKey || event.metaKey;
			if (!command) return;
			const key = event.key.toLowerCase();
			if (key === "k") {
				event.preventDefault();
				onSearch();
				return;
			}
			if ((key === "enter" && event.shiftKey) || key === ".") {
				event.preventDefault();
				const { runAll, stopAll } = useCanvas.getState();
				void (key === "." ? stopAll() : runAll());
				return;
			}
			if (key === "s" || key === "o") {
				event.preventDefault();
				const keeping = useKeeping.getState();
				if (key === "s") void keeping.save();
				else if (!keeping.question) keeping.ask({ kind: "open" });
				return;
			}
			if (isTyping(event.target)) return;
			const canvas = useCanvas.getState();
			const actions: Record<string, () => void> = {
				z: event.shiftKey ? canvas.redo : canvas.undo,
				y: canvas.redo,
				c: canvas.copy,
				v: canvas.paste,
				x: canvas.cut,
				d: () => {
					canvas.copy();
					canvas.paste();
				},
				g: event.shiftKey ? canvas.ungroup : canvas.group,
				a: () => canvas.select(canvas.history.present.nodes.map((node) => node.id)),
			};
			const action = actions[key];
			if (!action) return;
			// Words that are marked, in an answer for instance, are what is copied then.
			if ((key === "c" || key === "x") && window.getSelection()?.isCollapsed === false) return;
			event.preventDefault();
			action();
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
		(target.isContentEditable ||
			["INPUT", "TEXTAREA", "SELECT"].includes(target.tagName) ||
			target.closest('[role="dialog"], [role="menu"]') !== null)
	);
}
