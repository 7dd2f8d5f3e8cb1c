/** Canvases that the server keeps: saving, opening, and what becomes of two who save the same one. */

import { ApiError, type CanvasEntry, type CanvasView, call } from "@/api/client";
import type { Page } from "@/api/shapes";
import { type CanvasDocument, LIMITS } from "./document";
import { importCanvas, sharedCanvas } from "./exchange";

/** Longest id of a canvas on the server. */
const ID_LENGTH = 63;
/** So many free ids are looked for when a copy is kept. */
const COPIES = 50;

/** An id that people recognise: the letters and digits of the name, joined by `-`. Empty when the name has none. */
export function idFrom(name: string): string {
	const plain = name.normalize("NFKD").replace(/\p{Mark}/gu, "");
	const words = plain.split(/[^A-Za-z0-9]+/).filter(Boolean);
	return words.join("-").toLowerCase().slice(0, ID_LENGTH).replace(/-$/, "");
}

/** What is wrong with an id, in words for a person; null when nothing is. */
export function idProblem(id: string): string | null {
	const fine = id.length <= ID_LENGTH && /^[a-z0-9][a-z0-9_-]*$/.test(id) && !id.includes("__");
	return fine ? null : `an id is 1 to ${ID_LENGTH} of a-z, 0-9, - and _, and begins with a letter or digit`;
}

/** The id of a copy. */
export function copyId(id: string, number: number): string {
	const end = `-${number}`;
	return id.slice(0, ID_LENGTH - end.length) + end;
}

/** The name of a copy. */
export function copyName(name: string): string {
	const end = " (copy)";
	return name.endsWith(end) ? name : name.slice(0, LIMITS.name - end.length) + end;
}

/** Where a canvas of the server is known by. */
export function keyOf(namespace: string, id: string): string {
	return `${namespace}/${id}`;
}

/** Whether somebody else saved in between. */
export function isOvertaken(error: unknown): error is ApiError {
	return error instanceof ApiError && error.code === "canvas_overtaken";
}

function pathOf(namespace: string, id: string): string {
	return `/canvases/${encodeURIComponent(id)}?namespace=${encodeURIComponent(namespace)}`;
}

/** A request that may have arrived although its answer did not: repeated, it goes under the same key. */
let tried = { what: "", key: "" };

/** Saves a canvas over a revision, 0 for one that is new; fails with {@link isOvertaken} when another is there. */
export async function save(document: CanvasDocument, id: string, revision: number): Promise<CanvasEntry> {
	const { namespace } = document;
	const { text } = sharedCanvas(document);
	const what = JSON.stringify([namespace, id, revision, text]);
	if (tried.what !== what) tried = { what, key: crypto.randomUUID() };
	const body = { namespace, revision, document: JSON.parse(text) as unknown };
	const path = `/canvases/${encodeURIComponent(id)}`;
	const entry = await call<CanvasEntry>(path, { method: "PUT", body, key: tried.key });
	tried = { what: "", key: "" };
	return entry;
}

/** Saves it under an id that nobody has yet. */
export async function saveCopy(document: CanvasDocument, id: string): Promise<CanvasEntry> {
	for (let number = 2; number < COPIES; number += 1) {
		try {
			return await save(document, copyId(id, number), 0);
		} catch (error) {
			if (!isOvertaken(error)) throw error;
		}
	}
	throw new Error(`there are ${COPIES} canvases like ${id}: give this one another name`);
}

/** Saves it over whatever is there. */
export async function overwrite(document: CanvasDocument, id: string): Promise<CanvasEntry> {
	return save(document, id, (await look(document.namespace, id))?.revision ?? 0);
}

/** A canvas as it was saved last; null when it is gone. */
export async function look(namespace: string, id: string): Promise<CanvasView | null> {
	try {
		return await call<CanvasView>(pathOf(namespace, id));
	} catch (error) {
		if (error instanceof ApiError && error.code === "canvas_not_found") return null;
		throw error;
	}
}

/** What was kept, as it is drawn: checked like any import, and of the namespace that keeps it. */
export function drawn(view: CanvasView): CanvasDocument {
	return { ...importCanvas(JSON.stringify(view.document)), namespace: view.namespace, kept: view.canvas_id };
}

/** A page of those of a namespace. */
export async function list(namespace: string, cursor: string | null, signal: AbortSignal): Promise<Page<CanvasEntry>> {
	const query = new URLSearchParams({ namespace, limit: "50" });
	if (cursor) query.set("cursor", cursor);
	return call<Page<CanvasEntry>>(`/canvases?${query}`, { signal });
}
