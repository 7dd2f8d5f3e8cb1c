//! `riverrun tools check`: reads a tools file, starts nothing, and says what is wrong with it.

use std::path::{Path, PathBuf};

use riverrun_agents::tools::sandbox;
use riverrun_schemas::counted;
use serde::Serialize;

use crate::error::{CliError, Exit};
use crate::host;
use crate::output::{Output, table};
use crate::settings::Settings;

#[derive(Serialize)]
struct Checked {
    file: String,
    /// Tools of the file that can be used.
    tools: usize,
    /// MCP servers that can be tried.
    mcp_servers: usize,
    /// What the kernel enforces on command tools.
    sandbox: String,
    problems: Vec<Found>,
}

#[derive(Serialize)]
struct Found {
    line: usize,
    name: Option<String>,
    reason: String,
    fix: String,
}

pub fn run(settings: &Settings, file: Option<&Path>, output: Output) -> Result<(), CliError> {
    // Without a setting and a file in the data folder there are no tools of users, which is nothing wrong.
    let none = file.is_none() && !settings.tools_file_named && !settings.tools_file.exists();
    let is_named_here = file.is_some();
    let file: PathBuf = file.map_or_else(|| settings.tools_file.clone(), Path::to_owned);
    let defined = host::tools(settings, &file, !none)?.defined;
    // No setting is to blame for a file that the command line names.
    let slipped = is_named_here && !file.exists();
    let fix = |usual: &str| if slipped { "check the path".to_owned() } else { usual.to_owned() };
    let problems: Vec<Found> = defined
        .problems()
        .iter()
        .map(|problem| Found {
            line: problem.line,
            name: problem.name.clone(),
            reason: problem.reason.clone(),
            fix: fix(&problem.fix),
        })
        .collect();
    let checked = Checked {
        file: file.display().to_string(),
        tools: defined.count(),
        mcp_servers: defined.servers().len(),
        sandbox: sandbox::support().to_string(),
        problems,
    };
    output.show(&checked, |checked| {
        let row = |found: &Found| {
            // 0 is the file as a whole.
            let line = if found.line == 0 { String::new() } else { found.line.to_string() };
            [line, found.name.clone().unwrap_or_default(), found.reason.clone(), found.fix.clone()]
        };
        let read = if none {
            format!("there is no {}: only built-in tools; RIVERRUN_TOOLS_FILE names another file", checked.file)
        } else {
            let (tools, servers) = (counted(checked.tools, "tool"), counted(checked.mcp_servers, "MCP server"));
            format!("{}: {tools} and {servers}, nothing is wrong", checked.file)
        };
        let good = format!("{read}; programs: {}", checked.sandbox);
        table(["line", "name", "what is wrong", "fix"], checked.problems.iter().map(row).collect(), &good)
    })?;
    match defined.problems().first() {
        None => Ok(()),
        Some(first) => {
            let what = match &first.name {
                Some(_) => format!("{} of its entries can't be used: {}", defined.problems().len(), file.display()),
                None => format!("{} can't be used: {}", file.display(), first.reason),
            };
            Err(CliError::new(Exit::Usage, what).hint(fix(&first.fix)))
        }
    }
}
