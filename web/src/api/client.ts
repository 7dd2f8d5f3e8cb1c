/** Calls to the API. Types come from its OpenAPI document; `npm run types` makes them anew. */

import type { components } from "./schema";

type Schemas = components["schemas"];
export type AgentEntry = Schemas["AgentEntry"];
export type ToolEntry = Schemas["ToolEntry"];
export type CollectionView = Schemas["CollectionView"];
export type RunBody = Schemas["RunBody"];
export type ChainBody = Schemas["ChainBody"];
export type ChainAccepted = Schemas["ChainAccepted"];
export type CanvasEntry = Schemas["CanvasEntry"];
export type CanvasView = Schemas["CanvasView"];
export type RunView = Schemas["RunView"];
export type RunSummary = Schemas["RunSummary"];
export type RunStatus = Schemas["RunStatus"];
export type RunAccepted = Schemas["RunAccepted"];
export type StepView = Schemas["StepView"];
export type CitationView = Schemas["CitationView"];
export type UsageView = Schemas["UsageView"];
export type HealthView = Schemas["HealthView"];
export type ServiceView = Schemas["ServiceView"];
export type DeadLetterEntry = Schemas["DeadLetterEntry"];
export type SearchDone = Schemas["SearchDone"];
export type AskDone = Schemas["AskDone"];
export type DocumentView = Schemas["DocumentView"];
export type IngestView = Schemas["IngestView"];
export type IngestAccepted = Schemas["IngestAccepted"];
export type Problem = Schemas["Problem"];
export type FieldError = Schemas["FieldError"];

/** Where the API is: the page's own address unless the build names another. */
export const API_BASE = (process.env.NEXT_PUBLIC_API_BASE ?? "").replace(/\/+$/, "");

/** The address of a WebSocket path. */
export function socketUrl(path: string): string {
	const base = API_BASE || window.location.origin;
	return base.replace(/^http/, "ws") + path;
}

/** The API refused, and says why and what to do. */
export class ApiError extends Error {
	constructor(
		readonly status: number,
		readonly code: string,
		message: string,
		readonly hint?: string | null,
		/** Each field, or line of a file, that was refused. */
		readonly fields: FieldError[] = [],
	) {
		super(message);
		this.name = "ApiError";
	}
}

/** Nobody answers. */
export class Offline extends Error {
	constructor(message = "the backend is offline") {
		super(message);
		this.name = "Offline";
	}
}

/** Nobody has answered for so long: the backend is away, or at work on it still. */
export class TimedOut extends Offline {
	constructor(timeoutMs: number) {
		super(`the backend did not answer within ${timeoutMs / 1_000} s`);
		this.name = "TimedOut";
	}
}

const TIMEOUT_MS = 30_000;
/** More refused fields than this are not put into one sentence. */
const FIELDS_IN_WORDS = 3;

let onUnauthorized: () => void = () => {};

/** Who is told when the API wants to know who asks. */
export function whenUnauthorized(tell: () => void): void {
	onUnauthorized = tell;
}

type Options = {
	method?: string;
	body?: unknown;
	form?: FormData;
	/** `Idempotency-Key`: a repeat gets the first answer and starts nothing. */
	key?: string;
	/** `Prefer: respond-async`: the answer does not wait for what comes of it. */
	background?: boolean;
	signal?: AbortSignal;
	timeoutMs?: number;
};

/** One call. Throws {@link ApiError} or {@link Offline}; an abort is thrown on as it is. */
export async function call<T>(path: string, options: Options = {}): Promise<T> {
	const timeoutMs = options.timeoutMs ?? TIMEOUT_MS;
	const timeout = AbortSignal.timeout(timeoutMs);
	const signal = options.signal ? AbortSignal.any([options.signal, timeout]) : timeout;
	const headers: Record<string, string> = { accept: "application/json" };
	if (options.body !== undefined) headers["content-type"] = "application/json";
	if (options.key) headers["idempotency-key"] = options.key;
	if (options.background) headers.prefer = "respond-async";
	let [status, text] = [0, ""];
	try {
		const response = await fetch(API_BASE + path, {
			method: options.method ?? "GET",
			headers,
			body: options.form ?? (options.body === undefined ? undefined : JSON.stringify(options.body)),
			signal,
		});
		status = response.status;
		// The connection may be lost, and the time be over, in the middle of an answer as well.
		text = await response.text();
	} catch (error) {
		if (options.signal?.aborted) throw error;
		throw timeout.aborted ? new TimedOut(timeoutMs) : new Offline();
	}
	return answered<T>(status, text);
}

type Sending = {
	key: string;
	timeoutMs: number;
	/** How much has been sent, from 0 to 1. */
	onSent: (share: number) => void;
};

/** Sends a form and tells how far it is, which `fetch` does not. Throws as {@link call} does. */
export function send<T>(path: string, form: FormData, { key, timeoutMs, onSent }: Sending): Promise<T> {
	return new Promise((resolve, reject) => {
		const request = new XMLHttpRequest();
		request.open("POST", API_BASE + path);
		request.timeout = timeoutMs;
		request.setRequestHeader("accept", "application/json");
		request.setRequestHeader("idempotency-key", key);
		request.upload.onprogress = ({ loaded, total }) => onSent(total > 0 ? loaded / total : 0);
		request.onerror = () => reject(new Offline());
		request.ontimeout = () => reject(new TimedOut(timeoutMs));
		request.onload = () => {
			try {
				resolve(answered<T>(request.status, request.responseText));
			} catch (error) {
				reject(error);
			}
		};
		request.send(form);
	});
}

/** What the server has answered; throws {@link ApiError} where it refuses, or where it is not the API that answers. */
function answered<T>(status: number, text: string): T {
	if (status === 401) onUnauthorized();
	if (status < 200 || status > 299) throw refusal(status, text);
	if (status === 204) return undefined as T;
	try {
		return JSON.parse(text) as T;
	} catch {
		const hint = "is there something else between this page and riverrun?";
		throw new ApiError(status, "unreadable", `the server answered ${status} with what is no JSON`, hint);
	}
}

function refusal(status: number, text: string): ApiError {
	try {
		const problem = JSON.parse(text) as Problem;
		const fields = problem.errors ?? [];
		const words = fields.slice(0, FIELDS_IN_WORDS).map((e) => `${e.field}: ${e.reason}`);
		if (fields.length > FIELDS_IN_WORDS) words.push(`${fields.length - FIELDS_IN_WORDS} more`);
		// What the detail says already is not said twice.
		const more = words.length > 0 && !words.some((word) => problem.detail.includes(word));
		const message = more ? `${problem.detail} (${words.join("; ")})` : problem.detail;
		return new ApiError(status, problem.code, message || problem.title, problem.hint, fields);
	} catch {
		return new ApiError(status, "unreadable", `the server answered ${status}`);
	}
}

/** Words for a person. */
export function describe(error: unknown): string {
	if (error instanceof ApiError) return error.hint ? `${error.message}; ${error.hint}` : error.message;
	return error instanceof Error ? error.message : String(error);
}
