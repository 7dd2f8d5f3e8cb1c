/** Calls to the API. Types come from its OpenAPI document; `npm run types` makes them anew. */

import type { components } from "./schema";

type Schemas = components["schemas"];
export type AgentEntry = Schemas["AgentEntry"];
export type ToolEntry = Schemas["ToolEntry"];
export type CollectionView = Schemas["CollectionView"];
export type RunBody = Schemas["RunBody"];
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
	) {
		super(message);
		this.name = "ApiError";
	}
}

/** Nobody answers. */
export class Offline extends Error {
	constructor() {
		super("the backend is offline");
		this.name = "Offline";
	}
}

const TIMEOUT_MS = 30_000;

type Options = {
	method?: string;
	body?: unknown;
	form?: FormData;
	/** `Idempotency-Key`: a repeat gets the first answer and starts nothing. */
	key?: string;
	signal?: AbortSignal;
	timeoutMs?: number;
};

/** One call. Throws {@link ApiError} or {@link Offline}; an abort is thrown on as it is. */
export async function call<T>(path: string, options: Options = {}): Promise<T> {
	const timeout = AbortSignal.timeout(options.timeoutMs ?? TIMEOUT_MS);
	const signal = options.signal ? AbortSignal.any([options.signal, timeout]) : timeout;
	const headers: Record<string, string> = { accept: "application/json" };
	if (options.body !== undefined) headers["content-type"] = "application/json";
	if (options.key) headers["idempotency-key"] = options.key;
	let response: Response;
	try {
		response = await fetch(API_BASE + path, {
			method: options.method ?? "GET",
			headers,
			body: options.form ?? (options.body === undefined ? undefined : JSON.stringify(options.body)),
			signal,
		});
	} catch (error) {
		if (options.signal?.aborted) throw error;
		throw new Offline();
	}
	if (!response.ok) throw await refusal(response);
	return (await response.json()) as T;
}

async function refusal(response: Response): Promise<ApiError> {
	const text = await response.text().catch(() => "");
	try {
		const problem = JSON.parse(text) as Problem;
		const fields = (problem.errors ?? []).map((e) => `${e.field}: ${e.reason}`).join("; ");
		const message = fields ? `${problem.detail} (${fields})` : problem.detail;
		return new ApiError(response.status, problem.code, message || problem.title, problem.hint);
	} catch {
		return new ApiError(response.status, "unreadable", `the server answered ${response.status}`);
	}
}

/** Words for a person. */
export function describe(error: unknown): string {
	if (error instanceof ApiError) return error.hint ? `${error.message}. ${error.hint}` : error.message;
	return error instanceof Error ? error.message : String(error);
}
