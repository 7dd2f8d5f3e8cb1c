//! What projects may start, and what they are checked against.

use std::path::Path;

use riverrun_api::config::{PROJECT_TOOLS_FOLDER, Programs, ProjectSettings};

use super::{Values, wrong};
use crate::error::CliError;

const PROGRAMS: &str = "RIVERRUN_PROJECT_PROGRAMS";
const ADVISORIES: &str = "RIVERRUN_PROJECT_ADVISORIES";
const LICENCES: &str = "RIVERRUN_PROJECT_LICENCES";

/// Names with commas, `none` for no program at all; a folder and a file that can be read. Tools that are installed on request lie in the
/// data folder.
pub(super) fn settings(values: &Values, folder: &Path, data_dir: &Path) -> Result<ProjectSettings, CliError> {
    let tools = Some(data_dir.join(PROJECT_TOOLS_FOLDER));
    let mut settings = ProjectSettings { tools, ..ProjectSettings::default() };
    let named = values.list(PROGRAMS);
    if let Some(wrong_one) = named.iter().find(|name| name.contains(['/', ' '])) {
        return Err(wrong(PROGRAMS, wrong_one, "a name of a program without a folder"));
    }
    if !named.is_empty() {
        settings.programs = Programs::named(named.into_iter().filter(|name| name != "none"));
    }
    if let Some(text) = values.text(ADVISORIES) {
        let path = folder.join(&text);
        if !path.is_dir() {
            return Err(wrong(ADVISORIES, &text, "a folder that can be read"));
        }
        settings.advisories = Some(path);
    }
    if let Some(text) = values.text(LICENCES) {
        let path = folder.join(&text);
        if !path.is_file() {
            return Err(wrong(LICENCES, &text, "a file that can be read"));
        }
        settings.licences = Some(path);
    }
    Ok(settings)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn read(pairs: &[(&str, &str)]) -> Result<ProjectSettings, CliError> {
        let values: BTreeMap<String, String> = pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        settings(&Values::new(values), Path::new("/tmp"), Path::new("/tmp/data"))
    }

    #[test]
    fn given_programs_when_they_are_named_then_they_are_the_only_ones() {
        let usual = read(&[]).unwrap();
        assert!(usual.programs.allows("ruff") && !usual.programs.allows("sh") && usual.advisories.is_none());
        assert_eq!(usual.tools.as_deref(), Some(Path::new("/tmp/data/project-tools")));
        let named = read(&[(PROGRAMS, "sh, make")]).unwrap();
        assert!(named.programs.allows("sh") && named.programs.allows("make") && !named.programs.allows("ruff"));
        assert!(!read(&[(PROGRAMS, "none")]).unwrap().programs.allows("ruff"));
    }

    #[test]
    fn given_what_is_no_program_and_no_folder_when_it_is_read_then_it_is_refused_with_the_setting() {
        for (name, value) in
            [(PROGRAMS, "/bin/sh"), (PROGRAMS, "rm -rf"), (ADVISORIES, "/no/such/folder"), (LICENCES, "/tmp")]
        {
            let error = read(&[(name, value)]).unwrap_err();
            assert!(error.to_string().contains(name), "{error}");
        }
    }
}
