//! `riverrun project tools`: linters and type checkers in the data folder.

use clap::Subcommand;
use riverrun_api::wire::{InstallToolsBody, Items, ProjectToolView};

use crate::client::encode;
use crate::error::CliError;
use crate::host::Connection;
use crate::output::{Output, table, tell};

/// What to do with linters and type checkers.
#[derive(Debug, Subcommand)]
pub enum ToolsCommand {
    /// List those that analyses know: where each is, and which version would be installed
    Ls,
    /// Install tools into the data folder, with pip, npm or go; analyses use them before those of the PATH
    Install {
        /// Names of `riverrun project tools ls`
        #[arg(required = true, value_name = "NAME")]
        names: Vec<String>,
    },
    /// Remove a tool from the data folder
    Rm {
        /// A name of `riverrun project tools ls`
        name: String,
    },
}

const PLACE: &str = "/projects/tools";

pub(crate) async fn run(connection: &Connection, command: ToolsCommand, output: Output) -> Result<(), CliError> {
    let client = &connection.client;
    let found: Items<ProjectToolView> = match command {
        ToolsCommand::Ls => client.get(PLACE).await?,
        ToolsCommand::Install { names } => {
            tell(&format!("installing {}; this takes up to some minutes", names.join(", ")));
            client.post(PLACE, &InstallToolsBody { names }).await?
        }
        ToolsCommand::Rm { name } => client.delete(&format!("{PLACE}/{}", encode(&name))).await?,
    };
    output.show(&found, shown)
}

fn shown(found: &Items<ProjectToolView>) -> String {
    let row = |tool: &ProjectToolView| {
        let version = match (&tool.installed_version, &tool.version) {
            (Some(installed), Some(pinned)) if installed != pinned => format!("{installed}, would be {pinned}"),
            (Some(installed), _) => installed.clone(),
            (None, Some(pinned)) => format!("would be {pinned}"),
            (None, None) => String::new(),
        };
        let todo = tool.fix.clone().or_else(|| tool.program.clone()).unwrap_or_default();
        [tool.name.clone(), tool.languages.join(", "), tool.status.clone(), version, todo]
    };
    table(
        ["tool", "languages", "status", "version", "program, or what to do"],
        found.items.iter().map(row).collect(),
        "there are no tools",
    )
}
