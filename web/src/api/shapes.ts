/**
 * Short names of the API's shapes. Where its description has a text or an object of any kind and the pages know which ones
 * there are, the field is narrowed; all else is as the description has it.
 */

import type { components } from "./schema";

type Schemas = components["schemas"];

/** A shape in which some fields are known more narrowly; one that the shape has not is refused. */
type Known<T, K extends { [F in keyof K]: F extends keyof T ? unknown : never }> = Omit<T, keyof K> & K;

export type Page<T> = Known<Schemas["Page_RunSummary"], { items: T[] }>;
export type Items<T> = Known<Schemas["Items_AgentEntry"], { items: T[] }>;

// documents

export type DocumentVersionView = Schemas["DocumentVersionView"];
export type DocumentDetail = Schemas["DocumentDetail"];
export type SourceVersion = Schemas["SourceVersion"];
export type DocumentText = Schemas["DocumentText"];
export type DeletionView = Schemas["DeletionView"];

// models

export type ModelCard = Schemas["ModelCardView"];
export type ModelEntry = Schemas["ModelEntry"];

// who one is

/** Before the server has been asked, only whether one has to sign in is known. */
export type SessionView = Pick<Schemas["SessionView"], "auth"> & Partial<Schemas["SessionView"]>;

// fine-tuning

export type DatasetFormat = "sft" | "dpo" | "chat";
export type DatasetView = Known<
	Schemas["DatasetView"],
	{
		format: DatasetFormat;
		tokens?: { min: number; p50: number; p95: number; max: number; total: number } | null;
		warnings: { line: number | null; reason: string }[];
	}
>;
export type Method = "sft_lora" | "dpo" | "qlora" | "rlhf";
type LoraBody = Schemas["LoraBody"];
/** All of them: what the server says of its own is whole. */
export type LoraSettings = { [F in keyof LoraBody]-?: NonNullable<LoraBody[F]> };
export type JobBody = Known<Schemas["FinetuneBody"], { method: Method; lora?: LoraSettings }>;
export type JobDefaults = Known<
	Schemas["FinetuneDefaults"],
	{ lora: LoraSettings; methods: Known<Schemas["MethodEntry"], { name: Method }>[] }
>;
export type EstimateView = Schemas["EstimateView"];
export type JobStatus = "queued" | "running" | "succeeded" | "failed" | "cancelled";
export type JobView = Known<Schemas["JobView"], { method: Method; status: JobStatus }>;
export type JobAccepted = Schemas["FinetuneJobAccepted"];
/** What the stream of a job says, which the description has not. */
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
export type ModelVersionView = Known<
	Schemas["ModelVersionView"],
	{ method: Method; metrics: Record<string, number>; stage: Stage }
>;
export type ChatDone = Schemas["ChatDone"];

// projects

export type Severity = "critical" | "high" | "medium" | "low" | "info";
type BySeverity = Partial<Record<Severity, number>>;
export type ProjectStatus = "importing" | "imported" | "analyzing" | "analyzed" | "failed";
export type ProjectView = Known<Schemas["ProjectView"], { status: ProjectStatus }>;
export type ProjectAccepted = Schemas["ProjectAccepted"];
export type FindingView = Known<Schemas["FindingView"], { severity: Severity }>;
export type PublicName = Schemas["PublicNameView"];
export type Surface = Schemas["SurfaceView"];
export type SurfaceChange = Schemas["SurfaceChangeView"];
export type ReportView = Known<
	Schemas["ReportView"],
	{
		analysis_id: string;
		summary: Known<Schemas["ReportSummary"], { by_severity: BySeverity }>;
		findings: FindingView[];
	}
>;
export type AnalysisSummary = Known<Schemas["AnalysisView"], { by_severity: BySeverity }>;
export type TrendView = Known<Schemas["TrendView"], { new: FindingView[]; fixed: FindingView[] }>;
export type ProjectFile = Schemas["ProjectFileView"];
export type FileText = Schemas["FileTextView"];
export type ImproveBody = Schemas["ImproveBody"];
export type TestRun = Schemas["TestRunView"];
export type TestRuns = Schemas["TestRunsView"];
export type ProposalAccepted = Schemas["ProposalAccepted"];
export type ProposalView = Known<
	Schemas["ProposalView"],
	{ status: "proposing" | "proposed" | "refused" | "applied" | "stale" }
>;
export type ProjectTool = Schemas["ProjectToolView"];
export type FileChanged = Schemas["FileChangedView"];
