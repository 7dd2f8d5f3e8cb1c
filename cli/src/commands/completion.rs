//! `riverrun completion`.

use clap::CommandFactory;
use clap_complete::Shell;

use crate::args::Cli;
use crate::error::CliError;
use crate::output::print_line;

pub fn run(shell: Shell) -> Result<(), CliError> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "riverrun", &mut script);
    print_line(String::from_utf8_lossy(&script).trim_end())
}
