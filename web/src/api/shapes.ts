/**
 * Short names of the API's shapes, and those that the pages know more narrowly than its description does: names that are
 * one of a few instead of any text.
 */

import type { components } from "./schema";

type Schemas = components["schemas"];
type Failure = Schemas["FailureView"];

export type Page<T> = { items: T[]; next_cursor?: string | null };

// documents

export type DocumentVersionView = Schemas["DocumentVersionView"];
export type DocumentDetail = Schemas["DocumentDetail"];
export type SourceVersion = Schemas["SourceVersion"];
export type DocumentText = Schemas["DocumentText"];
export type DeletionView = Schemas["DeletionView"];

// models

export type ModelCard = Schemas["ModelCardView"];

// who one is

/** Before the server has been asked, only whether one has to sign in is known. */
export type SessionView = Pick<Schemas["SessionView"], "auth"> & Partial<Schemas["SessionView"]>;

// fine-tuning

export type DatasetFormat = "sft" | "dpo" | "chat";
export type DatasetView = {
	name: string;
	format: DatasetFormat;
	sha256: string;
	examples: number;
	train_examples: number;
	eval_examples: number;
	duplicates: number;
	size_bytes: number;
	tokens?: { min: number; p50: number; p95: number; max: number; total: number } | null;
	warnings?: { line: number | null; reason: string }[];
	created_at: string;
};
export type Method = "sft_lora" | "dpo" | "qlora" | "rlhf";
export type LoraSettings = { rank: number; alpha: number; dropout: number; targets: string[] };
export type JobBody = {
	name: string;
	method: Method;
	dataset: string;
	base_model?: string;
	max_steps?: number;
	lora?: LoraSettings;
	learning_rate?: number;
	batch_size?: number;
	seq_len?: number;
	seed?: number;
};
export type JobDefaults = {
	base_model: string;
	base_models: string[];
	methods: { name: Method; available: boolean; reason?: string | null }[];
	max_steps: number;
	lora: LoraSettings;
	learning_rate: number;
	batch_size: number;
	seq_len: number;
	seed: number;
};
export type EstimateView = Schemas["EstimateView"];
export type JobStatus = "queued" | "running" | "succeeded" | "failed" | "cancelled";
export type JobView = {
	job_id: string;
	name: string;
	method: Method;
	dataset: string;
	dataset_sha256: string;
	base_model: string;
	status: JobStatus;
	step: number;
	max_steps: number;
	loss?: number | null;
	eval_loss?: number | null;
	learning_rate?: number | null;
	tokens_per_s?: number | null;
	eta_s?: number | null;
	settings?: { lora: LoraSettings; learning_rate: number; batch_size: number; seq_len: number; seed: number } | null;
	model?: string | null;
	error?: Failure | null;
	created_at: string;
	started_at?: string | null;
	finished_at?: string | null;
};
export type JobAccepted = Schemas["FinetuneJobAccepted"];
export type JobMessage =
	| { type: "start"; job?: JobView }
	| {
			type: "progress";
			seq: number;
			step: number;
			max_steps: number;
			loss: number;
			learning_rate: number;
			tokens_per_s: number;
			eta_s?: number | null;
			eval_loss?: number | null;
	  }
	| { type: "final"; job: JobView };
export type Stage = "candidate" | "ready" | "retired";
export type ModelVersionView = {
	model: string;
	version: number;
	base_model: string;
	method: Method;
	metrics: Record<string, number>;
	dataset_sha256: string;
	adapter_sha256: string;
	size_bytes: number;
	job_id: string;
	created_at: string;
	stage: Stage;
	gate?: { passed: boolean; reason?: string | null } | null;
	chat_model: string;
};
export type ChatDone = Schemas["ChatDone"];

// projects

export type Severity = "critical" | "high" | "medium" | "low" | "info";
export type ProjectStatus = "importing" | "imported" | "analyzing" | "analyzed" | "failed";
export type ProjectView = {
	project_id: string;
	name: string;
	source: string;
	status: ProjectStatus;
	files: number;
	languages: { name: string; files: number; lines: number }[];
	size_bytes: number;
	skipped?: number;
	error?: Failure | null;
	analyses: number;
	progress?: Schemas["ProjectProgressView"] | null;
	created_at: string;
	updated_at: string;
};
export type ProjectAccepted = Schemas["ProjectAccepted"];
export type FindingView = {
	id: string;
	tool: string;
	rule: string;
	severity: Severity;
	file: string;
	line: number;
	column: number;
	message: string;
	fix?: string | null;
};
export type PublicName = Schemas["PublicNameView"];
export type Surface = Schemas["SurfaceView"];
export type SurfaceChange = Schemas["SurfaceChangeView"];
export type ReportView = {
	project_id: string;
	analysis_id: string;
	created_at: string;
	took_ms: number;
	summary: {
		findings: number;
		by_severity: Partial<Record<Severity, number>>;
		by_tool: Record<string, number>;
		files: number;
		lines: number;
	};
	findings: FindingView[];
	findings_truncated?: boolean;
	metrics: Record<string, number>;
	file_metrics: { file: string; lines: number; complexity: number; findings: number }[];
	tools: {
		name: string;
		status: "ran" | "missing" | "failed" | "skipped";
		version?: string | null;
		findings: number;
		took_ms: number;
		detail?: string | null;
		fix?: string | null;
	}[];
	review?: { text: string; citations: { n: number; file: string; line: number }[]; model: string } | null;
	surface?: Surface | null;
	surface_change?: SurfaceChange | null;
};
export type AnalysisSummary = {
	analysis_id: string;
	created_at: string;
	findings: number;
	by_severity: Partial<Record<Severity, number>>;
	metrics: Record<string, number>;
};
export type TrendView = {
	from: string;
	to: string;
	new: FindingView[];
	fixed: FindingView[];
	unchanged: number;
	not_compared?: Schemas["NotComparedView"][];
	surface?: SurfaceChange | null;
};
export type ProjectFile = Schemas["ProjectFileView"];
export type ProposalView = {
	proposal_id: string;
	file: string;
	status: "proposing" | "proposed" | "refused" | "applied" | "stale";
	diff: string;
	before_sha256: string;
	after_sha256?: string | null;
	findings_before: number;
	findings_after: number;
	improves: boolean;
	note?: string | null;
	created_at: string;
};
export type ProjectTool = Schemas["ProjectToolView"];
export type FileChanged = { file: string; after_sha256: string };
