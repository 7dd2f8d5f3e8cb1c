//! Changed command lines and settings files. `fuzz/README.md` says how to try more of them.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use clap::{Command, CommandFactory, Parser};

use crate::args::Cli;
use crate::fuzz::{Target, run};
use crate::settings::read_dotenv;

/// A line of every command with all of its options, a word a line.
fn command_lines(command: &Command, path: &str, found: &mut Vec<Vec<u8>>) {
    let mut line = path.to_owned();
    for argument in command.get_arguments() {
        match argument.get_long() {
            Some(long) => {
                line.push_str("\n--");
                line.push_str(long);
                if argument.get_action().takes_values() {
                    line.push_str("\n3");
                }
            }
            None if argument.is_positional() => line.push_str("\nx"),
            None => {}
        }
    }
    found.push(line.into_bytes());
    for inner in command.get_subcommands() {
        command_lines(inner, &format!("{path}\n{}", inner.get_name()), found);
    }
}

#[test]
fn command_lines_are_understood_or_refused() {
    let mut corpus = Vec::new();
    command_lines(&Cli::command(), "riverrun", &mut corpus);
    let words = [
        "\n--json",
        "\n-v",
        "\n--",
        "\n-",
        "\n--help",
        "=",
        "\n",
        "\n-n",
        "\u{feff}",
        "\n-99999999999999999999",
        "\n../..",
    ];
    run(&Target { name: "command_lines", corpus: &corpus, words: &words, inputs: 1_000 }, |bytes| {
        let line = bytes.split(|byte| *byte == b'\n').map(OsStr::from_bytes);
        if let Err(error) = Cli::try_parse_from(line) {
            assert!(!error.to_string().is_empty());
        }
    });
}

#[test]
fn settings_files_are_read_or_refused_without_showing_a_line() {
    let corpus = [
        b"RIVERRUN_API_PORT=8000\nRIVERRUN_OPENAI_API_KEY='hidden-value'\n# a note\nOTHER=${HOME}\n".to_vec(),
        b"export RIVERRUN_LOG=\"info\\n\" # why\r\nRIVERRUN_X=hidden-value$RIVERRUN_LOG\n".to_vec(),
    ];
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(".env");
    let words = ["RIVERRUN_", "=", "'", "\"", "\\", "${", "}", "#", "\n", "export "];
    run(&Target { name: "settings_files", corpus: &corpus, words: &words, inputs: 3_000 }, |bytes| {
        std::fs::write(&path, bytes).unwrap();
        if let Err(error) = read_dotenv(&path) {
            assert!(!error.to_string().contains("hidden-value"), "{error}");
        }
    });
}
