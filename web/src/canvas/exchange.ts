/** Export and import. What comes in is checked as a whole: unknown keys, other versions and too much are refused. */

import { en } from "zod/locales";
import * as z from "zod/mini";
import { type CanvasDocument, CIRCLE, CONNECTED, closing, edgeId, FORMAT, LIMITS, misfit, VERSION } from "./document";
import { masked } from "./secrets";

z.config(en());

const name = z.string().check(z.minLength(1), z.maxLength(LIMITS.name));
const text = z.string().check(z.maxLength(LIMITS.text));
const place = z.number().check(z.gte(-1e6), z.lte(1e6));
const extent = z.optional(z.number().check(z.gte(0), z.lte(1e5)));
const at = { id: name, x: place, y: place, width: extent, height: extent, group: z.optional(name) };

const node = z.discriminatedUnion("kind", [
	z.strictObject({
		...at,
		kind: z.literal("agent"),
		data: z.strictObject({
			agent: z.nullable(name),
			task: text,
			name: z.optional(z.string().check(z.maxLength(LIMITS.agentName), z.regex(/\S/))),
			model: z.optional(name),
			maxIters: z.optional(z.int().check(z.gte(1), z.lte(LIMITS.iterations))),
			approval: z.optional(z.enum(["never", "external", "always"])),
			session: z.optional(name),
		}),
	}),
	z.strictObject({ ...at, kind: z.literal("tool"), data: z.strictObject({ tool: name }) }),
	z.strictObject({ ...at, kind: z.literal("collection"), data: z.strictObject({ collection: name }) }),
	z.strictObject({ ...at, kind: z.literal("note"), data: z.strictObject({ text }) }),
	z.strictObject({
		...at,
		kind: z.literal("group"),
		data: z.strictObject({ title: z.string().check(z.maxLength(LIMITS.name)) }),
	}),
]);

const schema = z.strictObject({
	format: z.literal(FORMAT),
	version: z.literal(VERSION),
	name: z.string().check(z.maxLength(LIMITS.name)),
	namespace: z.string().check(z.regex(/^[a-z0-9][a-z0-9-]{0,62}$/)),
	nodes: z.array(node).check(z.maxLength(LIMITS.nodes)),
	edges: z.array(z.strictObject({ from: name, to: name })).check(z.maxLength(LIMITS.edges)),
});

/** The JSON schema of the exchange format, for other programs: `public/canvas.schema.json`. */
export function publishedSchema(): Record<string, unknown> {
	return { title: "riverrun canvas", ...z.toJSONSchema(schema) };
}

export class ImportError extends Error {
	override name = "ImportError";
}

const FORBIDDEN = new Set(["__proto__", "constructor", "prototype"]);

/** Reads an exported canvas; throws {@link ImportError} with what is wrong and where. */
export function importCanvas(json: string): CanvasDocument {
	if (json.length > LIMITS.bytes) throw new ImportError(`the file is larger than ${LIMITS.bytes >> 20} MiB`);
	let value: unknown;
	try {
		value = JSON.parse(json, (key, inner) => {
			if (FORBIDDEN.has(key)) throw new ImportError(`the key ${key} is not allowed`);
			return inner;
		});
	} catch (error) {
		if (error instanceof ImportError) throw error;
		throw new ImportError(`the file is not JSON: ${error instanceof Error ? error.message : error}`);
	}
	const read = schema.safeParse(value);
	if (!read.success) {
		const issue = read.error.issues[0];
		throw new ImportError(`${issue?.path.map(String).join(".") || "the file"}: ${issue?.message ?? "is not a canvas"}`);
	}
	return connected(read.data);
}

/** With its connections, of which none is there that could not be drawn. */
function connected(read: z.infer<typeof schema>): CanvasDocument {
	const nodes = new Map(read.nodes.map((one) => [one.id, one]));
	if (nodes.size < read.nodes.length) throw new ImportError("two nodes have the same id");
	const groups = new Set(read.nodes.filter((one) => one.kind === "group").map((one) => one.id));
	for (const { id, group, kind } of read.nodes) {
		if (group !== undefined && (!groups.has(group) || kind === "group")) {
			throw new ImportError(`node ${id} lies in ${group}, which is no group that it can lie in`);
		}
	}
	const seen = new Set<string>();
	for (const { from, to } of read.edges) {
		const pair = JSON.stringify([from, to]);
		const reason = misfit(nodes.get(from), nodes.get(to)) ?? (seen.has(pair) ? CONNECTED : null);
		if (reason) throw notConnected(from, to, reason);
		seen.add(pair);
	}
	const document = { ...read, edges: read.edges.map(({ from, to }) => ({ id: edgeId(from, to), from, to })) };
	const circle = closing(document);
	if (circle) throw notConnected(circle.from, circle.to, CIRCLE);
	return document;
}

function notConnected(from: string, to: string, reason: string): ImportError {
	return new ImportError(`connection ${from} to ${to}: ${reason}`);
}

/** The canvas as this browser keeps it: in the exchange format, with what was typed as it was typed. */
export function exportCanvas(document: CanvasDocument): string {
	return `${JSON.stringify(plain(document), null, 2)}\n`;
}

/** The canvas for others, as a file or on the server: without the keys that somebody typed into it, which are counted. */
export function sharedCanvas(document: CanvasDocument): { text: string; keys: number } {
	let keys = 0;
	const words = (name: string, value: unknown) => {
		if (typeof value !== "string" || NAMES.has(name)) return value;
		const found = masked(value);
		keys += found.keys;
		return found.text;
	};
	return { text: `${JSON.stringify(plain(document), words, 2)}\n`, keys };
}

/** What must stay as it is for the canvas to be one. */
const NAMES = new Set(["id", "from", "to", "group", "kind", "format", "namespace"]);

/** What is exported: no run, and not where the server keeps it. */
function plain({ format, version, name, namespace, nodes, edges }: CanvasDocument) {
	return { format, version, name, namespace, nodes, edges: edges.map(({ from, to }) => ({ from, to })) };
}

/** What is said of keys that were left out; nothing where none was. */
export function leftOut(keys: number): string {
	if (keys === 0) return "";
	return keys === 1
		? "; one thing that looks like a key was left out"
		: `; ${keys} things that look like keys were left out`;
}
