//! `setup.cfg` of setuptools: `install_requires` and extras.

use super::Manifest;
use super::requirement::{Requirement, Role};

/// One setting with the lines of its value.
struct Setting<'t> {
    section: &'t str,
    key: &'t str,
    lines: Vec<(usize, &'t str)>,
}

pub(super) fn read(text: &str) -> Manifest {
    let mut manifest = Manifest::default();
    for setting in settings(text) {
        let role = match (setting.section, setting.key) {
            ("options", "install_requires") => Role::Needed,
            ("options", "tests_require") | ("options.extras_require", _) => Role::Optional,
            ("options", "setup_requires") => Role::Build,
            _ => continue,
        };
        // Several in one line are divided by `;`, which begins a marker elsewhere: a marker has quotes.
        let is_one_line = setting.lines.len() == 1;
        for (number, line) in setting.lines {
            if line.starts_with("file:") || line.contains("%(") {
                manifest.is_open = true;
                continue;
            }
            let several = line.split(';').filter(|part| !part.contains(['\'', '"']));
            let parts: Vec<&str> = if is_one_line { several.collect() } else { vec![line] };
            let read = parts.into_iter().filter_map(|part| Requirement::read(part, number, role));
            manifest.requirements.extend(read);
        }
    }
    manifest
}

fn settings(text: &str) -> Vec<Setting<'_>> {
    let mut found: Vec<Setting<'_>> = Vec::new();
    let mut section = "";
    for (index, line) in text.lines().enumerate() {
        let plain = line.trim();
        if plain.is_empty() || plain.starts_with(['#', ';']) {
            continue;
        }
        if line.starts_with([' ', '\t']) {
            if let Some(last) = found.last_mut() {
                last.lines.push((index + 1, plain));
            }
        } else if let Some(name) = plain.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            section = name.trim();
        } else if let Some((key, value)) = plain.split_once(['=', ':']) {
            let value = value.trim();
            let lines = if value.is_empty() { Vec::new() } else { vec![(index + 1, value)] };
            found.push(Setting { section, key: key.trim(), lines });
        }
    }
    found
}
