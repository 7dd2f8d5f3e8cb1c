//! `riverrun finetune`.

mod conditions;
mod dataset;
pub mod eval;
mod from_runs;
mod ls;
mod train;
mod versions;

use std::path::PathBuf;

use clap::{Args, Subcommand};
use riverrun_models::ModelSettings;

use crate::args::finite;
use crate::error::CliError;
use crate::host::Connection;
use crate::output::Output;
use crate::paging::PageArgs;

/// What to do with datasets, trainings and the models that come out.
#[derive(Debug, Subcommand)]
pub enum FinetuneCommand {
    /// Check a dataset and keep it under a name
    Dataset(DatasetArgs),
    /// List datasets, newest first
    Datasets(PageArgs),
    /// Train a model, and follow the training to its end
    Train(Box<TrainArgs>),
    /// List trainings, newest first
    Jobs {
        /// Only those in this status
        #[arg(long)]
        status: Option<String>,
        #[command(flatten)]
        page: PageArgs,
    },
    /// Follow a training to its end
    Watch {
        /// The training
        job_id: String,
    },
    /// Ask a training to stop
    Cancel {
        /// The training
        job_id: String,
        /// Why
        #[arg(long)]
        reason: Option<String>,
    },
    /// List versions of models, newest first
    Registry(PageArgs),
    /// Show a version and where it comes from: base, training, dataset, runs
    Show {
        /// A version: model@number
        model: String,
    },
    /// Say what a version is for
    Stage {
        /// A version: model@number
        model: String,
        /// The stage: ready, retired or candidate
        stage: String,
    },
    /// Write a version's adapter to a folder, in the layout of PEFT, and its merged model where that is asked for
    Export {
        /// A version: model@number
        model: String,
        /// The folder; made when it is not there
        #[arg(long, value_name = "FOLDER")]
        to: PathBuf,
        /// Write the merged model, too: a GGUF file, as llama.cpp loads it
        #[arg(long)]
        merged: bool,
        /// Write the examples that it was trained on, too
        #[arg(long)]
        dataset: bool,
    },
    /// Measure answers against references
    Eval(eval::EvalArgs),
}

/// Options of `finetune dataset`.
#[derive(Debug, Args)]
pub struct DatasetArgs {
    /// Its name
    pub name: String,
    /// A file with one JSON object a line
    #[arg(long, value_name = "FILE", required_unless_present = "from_runs")]
    pub jsonl: Option<PathBuf>,
    /// What a line holds: sft (prompt, completion), dpo (prompt, chosen, rejected) or chat (messages)
    #[arg(long, default_value = "sft")]
    pub format: String,
    /// The model whose tokens are counted; the default one when left out
    #[arg(long, value_name = "MODEL")]
    pub base_model: Option<String>,
    /// Make it of runs of the namespace default and their answers: conditions such as 'agent=react and status=succeeded and
    /// tool_errors=0'
    #[arg(long, value_name = "CONDITIONS", conflicts_with = "jsonl")]
    pub from_runs: Option<String>,
}

/// Options of `finetune train`.
#[derive(Debug, Args)]
pub struct TrainArgs {
    /// A file with one JSON object a line, or the name of a dataset
    #[arg(long, value_name = "FILE|NAME")]
    pub dataset: String,
    /// What the file's lines hold: sft, dpo or chat; left out, what the method needs
    #[arg(long)]
    pub format: Option<String>,
    /// The model that comes out
    #[arg(long)]
    pub name: String,
    /// The method: sft_lora or dpo; qlora and rlhf need a CUDA GPU
    #[arg(long, default_value = "sft_lora")]
    pub method: String,
    /// The model that is trained; the default chat model when left out
    #[arg(long, value_name = "MODEL")]
    pub base_model: Option<String>,
    /// Most steps
    #[arg(long, value_name = "N")]
    pub max_steps: Option<u64>,
    /// Rows of an adapter's smaller matrices
    #[arg(long, value_name = "N")]
    pub rank: Option<usize>,
    /// How strongly adapters count, over the rank
    #[arg(long, value_name = "ALPHA", value_parser = finite::<f64>)]
    pub alpha: Option<f64>,
    /// Part of the input that adapters do not see in training
    #[arg(long, value_name = "0..0.9", value_parser = finite::<f32>)]
    pub dropout: Option<f32>,
    /// A projection that gets an adapter; may be repeated. All when left out
    #[arg(long = "target", value_name = "PROJECTION")]
    pub targets: Vec<String>,
    /// The highest learning rate
    #[arg(long, value_name = "RATE", value_parser = finite::<f64>)]
    pub learning_rate: Option<f64>,
    /// Examples of a pass
    #[arg(long, value_name = "N")]
    pub batch_size: Option<usize>,
    /// Passes of a step
    #[arg(long, value_name = "N")]
    pub accumulation: Option<usize>,
    /// Most tokens of an example; longer ones are left out
    #[arg(long, value_name = "N")]
    pub seq_len: Option<usize>,
    /// Everything that is drawn follows from it
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
    /// Make the version ready only when it is surely better than its base on what was held out
    #[arg(long)]
    pub require_gain: bool,
    /// Only say how long it would take and how much memory it would need
    #[arg(long)]
    pub estimate: bool,
    /// Do not follow the training; for a running server, which goes on with it
    #[arg(long, conflicts_with = "estimate")]
    pub detach: bool,
}

pub async fn run(
    connection: &Connection,
    command: FinetuneCommand,
    models: &ModelSettings,
    output: Output,
) -> Result<(), CliError> {
    match command {
        FinetuneCommand::Dataset(args) => dataset::run(connection, args, output).await,
        FinetuneCommand::Datasets(page) => ls::datasets(connection, page, output).await,
        FinetuneCommand::Train(args) => train::run(connection, *args, output).await,
        FinetuneCommand::Jobs { status, page } => ls::jobs(connection, status, page, output).await,
        FinetuneCommand::Watch { job_id } => train::watch(connection, &job_id, output).await,
        FinetuneCommand::Cancel { job_id, reason } => train::cancel(connection, &job_id, reason, output).await,
        FinetuneCommand::Registry(page) => versions::ls(connection, page, output).await,
        FinetuneCommand::Show { model } => versions::show(connection, &model, output).await,
        FinetuneCommand::Stage { model, stage } => versions::stage(connection, &model, &stage, output).await,
        FinetuneCommand::Export { model, to, merged, dataset } => {
            let more = [(merged, versions::MERGED), (dataset, versions::DATASET)];
            versions::export(connection, &model, &to, more, output).await
        }
        FinetuneCommand::Eval(args) => eval::run(Some(connection), models, args, output).await,
    }
}
