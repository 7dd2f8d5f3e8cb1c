//! A tool that is a program of this machine.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use async_trait::async_trait;
use serde_json::{Map, Value, json};

use super::file::{Argument, Command, Fault, fault};
use super::secrets::{SecretLookup, Texts};
use super::template::{Template, as_text, given};
use crate::tools::sandbox::{Confinement, Invocation, MAX_ARGUMENT, Sandbox, SandboxError};
use crate::tools::{Permission, Tool, ToolContext, ToolError, ToolManifest, ToolSource};

/// How much of what a failed program said is told, in characters.
const MAX_ERROR_TEXT: usize = 1_000;
const MAX_MEMORY_MB: u64 = 64 << 10;
const MAX_PROCESSES: u64 = 10_000;

pub(super) struct CommandTool {
    manifest: ToolManifest,
    program: std::path::PathBuf,
    arguments: Vec<Group>,
    stdin: Option<String>,
    environment: Texts,
    confinement: Confinement,
    sandbox: Sandbox,
}

/// Arguments that stand or are left out together.
struct Group {
    pieces: Vec<Piece>,
    /// Values here may begin with a dash: `--` stands somewhere before.
    after_dashes: bool,
}

enum Piece {
    Text(String),
    Value(String),
}

impl CommandTool {
    pub(super) fn new(
        mut manifest: ToolManifest,
        command: &Command,
        sandbox: Option<Sandbox>,
        secrets: &SecretLookup,
    ) -> Result<Self, Fault> {
        let Some(sandbox) = sandbox else {
            return fault("this program can't start command tools", "use the riverrun binary");
        };
        check_program(&command.program)?;
        let arguments = groups(&command.args)?;
        let stdin = command.stdin.as_deref().map(whole).transpose()?;
        check_names(&manifest, &arguments, stdin.as_deref())?;
        let environment = environment(command, secrets)?;
        let confinement = confinement(command, &manifest)?;
        manifest.source = ToolSource::Command;
        manifest.permissions = vec![Permission::Process];
        if command.network {
            manifest.permissions.push(Permission::Network);
        }
        Ok(Self { manifest, program: command.program.clone(), arguments, stdin, environment, confinement, sandbox })
    }

    fn invocation(&self, arguments: &Map<String, Value>) -> Result<Invocation, ToolError> {
        let mut words = Vec::new();
        for group in &self.arguments {
            words.extend(group.fill(arguments)?.into_iter().flatten());
        }
        let stdin = self.stdin.as_ref().and_then(|name| given(arguments, name)).map(as_text);
        Ok(Invocation {
            program: self.program.clone(),
            arguments: words,
            environment: self.environment.values.clone(),
            stdin: stdin.map(String::into_bytes),
            confinement: self.confinement.clone(),
            max_output: self.manifest.limits.result_bytes,
        })
    }
}

impl Group {
    /// `None` when a value was not given.
    fn fill(&self, arguments: &Map<String, Value>) -> Result<Option<Vec<String>>, ToolError> {
        let mut words = Vec::new();
        for piece in &self.pieces {
            let word = match piece {
                Piece::Text(text) => text.clone(),
                Piece::Value(name) => match given(arguments, name) {
                    Some(value) => self.check(name, as_text(value), value.is_string())?,
                    None => return Ok(None),
                },
            };
            words.push(word);
        }
        Ok(Some(words))
    }

    fn check(&self, name: &str, word: String, is_text: bool) -> Result<String, ToolError> {
        if word.contains('\0') {
            return Err(ToolError::Arguments(format!("{name} has a NUL character")));
        }
        if word.len() > MAX_ARGUMENT {
            let length = word.len();
            return Err(ToolError::Arguments(format!("{name} has {length} bytes, at most {MAX_ARGUMENT} are passed")));
        }
        if is_text && word.starts_with('-') && !self.after_dashes {
            return Err(ToolError::Arguments(format!(
                "{name} begins with a dash, which the program would read as an option"
            )));
        }
        Ok(word)
    }
}

#[async_trait]
impl Tool for CommandTool {
    fn manifest(&self) -> ToolManifest {
        self.manifest.clone()
    }

    async fn call(&self, arguments: Value, _: &ToolContext) -> Result<Value, ToolError> {
        let Value::Object(arguments) = arguments else {
            return Err(ToolError::Arguments("they are no object".to_owned()));
        };
        let invocation = self.invocation(&arguments)?;
        let finished = self.sandbox.run(invocation).await.map_err(|error| not_finished(&error))?;
        let said: String = self.environment.hide(&finished.stderr).chars().take(MAX_ERROR_TEXT).collect();
        match (finished.code, finished.signal) {
            (Some(0), _) => {
                let text = String::from_utf8_lossy(&finished.stdout);
                let output = serde_json::from_str(&text).unwrap_or_else(|_| Value::from(text.as_ref()));
                Ok(json!({ "output": self.environment.hide_in(output) }))
            }
            (Some(code), _) => Err(ToolError::Failed(format!("{} ended with {code}: {said}", self.manifest.name))),
            (None, signal) => {
                let signal = signal.unwrap_or_default();
                Err(ToolError::Lost(format!("{} was ended by signal {signal}: {said}", self.manifest.name)))
            }
        }
    }
}

/// A program that did not start has done nothing; one that was ended has done some of it.
fn not_finished(error: &SandboxError) -> ToolError {
    match error {
        SandboxError::NotStarted { .. } => ToolError::NotSent(error.to_string()),
        SandboxError::TooMuchOutput { .. } => ToolError::Lost(error.to_string()),
    }
}

fn check_program(program: &Path) -> Result<(), Fault> {
    let shown = program.display();
    if !program.is_absolute() {
        return fault(format!("program {shown} is no absolute path"), "write the whole path, such as /usr/bin/jq");
    }
    match std::fs::metadata(program) {
        Ok(found) if found.is_file() && found.permissions().mode() & 0o111 != 0 => Ok(()),
        Ok(_) => fault(format!("program {shown} can't be executed"), "name an executable file"),
        Err(error) => fault(format!("program {shown} is not there: {error}"), "install it, or correct the path"),
    }
}

fn whole(text: &str) -> Result<String, Fault> {
    match Template::parse(text)?.whole() {
        Some(name) => Ok(name.to_owned()),
        None => fault(format!("{text:?} is not one placeholder"), "write {argument} and nothing else"),
    }
}

fn groups(arguments: &[Argument]) -> Result<Vec<Group>, Fault> {
    let mut after_dashes = false;
    let mut groups = Vec::new();
    for argument in arguments {
        let words = match argument {
            Argument::One(word) => std::slice::from_ref(word),
            Argument::Group(words) => words.as_slice(),
        };
        let mut pieces = Vec::new();
        for word in words {
            let template = Template::parse(word)?;
            pieces.push(match (template.whole(), template.plain()) {
                (Some(name), _) => Piece::Value(name.to_owned()),
                (None, Some(text)) => Piece::Text(text),
                (None, None) => {
                    return fault(
                        format!("{word:?} mixes text and a value"),
                        "give the value an argument of its own: \"--name\", \"{value}\"",
                    );
                }
            });
            after_dashes |= word == "--";
        }
        groups.push(Group { pieces, after_dashes });
    }
    Ok(groups)
}

fn check_names(manifest: &ToolManifest, groups: &[Group], stdin: Option<&str>) -> Result<(), Fault> {
    let values = groups.iter().flat_map(|group| &group.pieces).filter_map(|piece| match piece {
        Piece::Text(_) => None,
        Piece::Value(name) => Some(name.as_str()),
    });
    let used: Vec<&str> = values.chain(stdin).collect();
    let known: Vec<&str> =
        manifest.input_schema["properties"].as_object().into_iter().flat_map(Map::keys).map(String::as_str).collect();
    if let Some(name) = used.iter().find(|name| !known.contains(name)) {
        return fault(format!("{{{name}}} is no argument of this tool"), format!("add arguments.{name}"));
    }
    if let Some(name) = known.iter().find(|name| !used.contains(name)) {
        return fault(format!("argument {name:?} is used nowhere"), format!("add \"{{{name}}}\" to args"));
    }
    Ok(())
}

fn environment(command: &Command, secrets: &SecretLookup) -> Result<Texts, Fault> {
    let loads = |name: &str| name.starts_with("LD_") || name.starts_with("RIVERRUN_SANDBOX");
    if let Some(name) = command.env.keys().find(|name| name.is_empty() || name.contains('=') || loads(name)) {
        return fault(format!("environment variable {name:?} can't be given to a tool"), "remove it");
    }
    Texts::resolve(&command.env, secrets)
}

fn confinement(command: &Command, manifest: &ToolManifest) -> Result<Confinement, Fault> {
    let usual = Confinement::default();
    if let Some(path) = command.read.iter().chain(&command.write).find(|path| !path.is_absolute()) {
        return fault(format!("{} is no absolute path", path.display()), "write the whole path");
    }
    let memory_bytes = match command.memory_mb {
        None => usual.memory_bytes,
        Some(mb) if mb <= MAX_MEMORY_MB => mb << 20,
        Some(mb) => return fault(format!("memory_mb is {mb}"), format!("use 1 to {MAX_MEMORY_MB}, or 0 for no limit")),
    };
    let processes = match command.processes {
        None => usual.processes,
        Some(count) if (1..=MAX_PROCESSES).contains(&count) => count,
        Some(count) => return fault(format!("processes is {count}"), format!("use 1 to {MAX_PROCESSES}")),
    };
    Ok(Confinement {
        read: command.read.clone(),
        write: command.write.clone(),
        network: command.network,
        memory_bytes,
        processes,
        cpu_seconds: manifest.limits.timeout.as_secs().max(1),
        ..usual
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fill(arguments: &[&str], values: Value) -> Result<Vec<String>, String> {
        let arguments: Vec<Argument> = arguments.iter().map(|word| Argument::One((*word).to_owned())).collect();
        let groups = groups(&arguments).map_err(|fault| fault.reason)?;
        let mut words = Vec::new();
        for group in groups {
            let filled = group.fill(values.as_object().unwrap()).map_err(|error| error.to_string())?;
            words.extend(filled.into_iter().flatten());
        }
        Ok(words)
    }

    #[test]
    fn given_values_that_mean_something_to_a_shell_when_they_are_passed_then_each_is_one_word() {
        for value in [
            "; rm -rf /",
            "$(id)",
            "`id`",
            "a b",
            "a\nb",
            "'\"",
            "| sh",
            "> /etc/passwd",
            "&& id",
            "*",
            "~",
            "{x}",
            "{{7*7}}",
            "%n",
            "",
            "../../etc/shadow",
        ] {
            assert_eq!(fill(&["-r", "{x}", "end"], json!({ "x": value })).unwrap(), ["-r", value, "end"], "{value:?}");
        }
    }

    #[test]
    fn given_values_that_would_be_options_when_they_are_passed_then_only_behind_two_dashes() {
        for value in ["-rf", "--upload-pack=touch /tmp/p", "-", "-oProxyCommand=x"] {
            assert!(fill(&["{x}"], json!({ "x": value })).unwrap_err().contains("dash"), "{value}");
            assert_eq!(fill(&["--", "{x}"], json!({ "x": value })).unwrap(), ["--", value]);
        }
        assert_eq!(fill(&["{x}"], json!({ "x": -7 })).unwrap(), ["-7"], "a number is no option of ours");
    }

    #[test]
    fn given_values_that_no_argument_can_be_when_they_are_passed_then_they_are_refused() {
        assert!(fill(&["{x}"], json!({ "x": "a\0b" })).is_err());
        assert!(fill(&["{x}"], json!({ "x": "a".repeat(MAX_ARGUMENT + 1) })).is_err());
    }

    #[test]
    fn given_a_definition_that_builds_words_from_values_when_it_is_read_then_it_is_refused() {
        for word in ["--x={x}", "sh -c {x}", "{x}{y}", "{x"] {
            assert!(fill(&[word], json!({})).is_err(), "{word}");
        }
    }

    #[test]
    fn given_a_group_when_its_value_is_left_out_then_all_of_it_is() {
        let arguments = [Argument::Group(vec!["--max".into(), "{n}".into()]), Argument::One("{x}".into())];
        let groups = groups(&arguments).unwrap();
        let values = json!({ "x": "a", "n": null });
        let filled: Vec<_> = groups.iter().map(|group| group.fill(values.as_object().unwrap()).unwrap()).collect();
        assert_eq!(filled, [None, Some(vec!["a".to_owned()])]);
    }

    #[test]
    fn given_a_program_that_did_not_run_to_its_end_when_it_had_begun_then_what_it_did_is_not_known() {
        let program = "/bin/pay".to_owned();
        let begun = not_finished(&SandboxError::TooMuchOutput { program: program.clone(), limit: 1 });
        assert!(begun.leaves_outcome_unknown(), "{begun}");
        let not_begun = not_finished(&SandboxError::NotStarted { program, reason: "it is not there".into() });
        assert!(matches!(not_begun, ToolError::NotSent(_)), "{not_begun}");
    }

    #[test]
    fn given_programs_that_are_none_when_they_are_checked_then_the_fault_says_the_fix() {
        for program in ["jq", "./jq", "/usr", "/no/such/program", "/etc/passwd"] {
            let fault = check_program(Path::new(program)).unwrap_err();
            assert!(fault.reason.contains(program) && !fault.fix.is_empty(), "{fault:?}");
        }
        assert!(check_program(Path::new("/bin/sh")).is_ok());
    }
}
