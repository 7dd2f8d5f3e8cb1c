//! `pyproject.toml` (PEP 621, PEP 735 and Poetry's tables) and `Pipfile`.

use toml::de::{DeTable, DeValue};
use toml::{Table, Value};

use super::Manifest;
use super::requirement::{Requirement, Role, exact, package};

/// Versions that are any version.
const ANY: [&str; 2] = ["", "*"];

pub(super) fn pyproject(text: &str) -> Manifest {
    let Ok(table) = toml::from_str::<Table>(text) else { return Manifest::unknown() };
    // The same with the places of all values.
    let Ok(placed) = DeTable::parse(text) else { return Manifest::unknown() };
    let placed = placed.get_ref();
    let mut found = Vec::new();
    listed(text, placed_at(placed, &["project", "dependencies"]), Role::Needed, &mut found);
    for groups in [placed_at(placed, &["project", "optional-dependencies"]), placed_at(placed, &["dependency-groups"])]
    {
        for list in groups.and_then(|groups| groups.as_table()).into_iter().flat_map(|groups| groups.values()) {
            listed(text, Some(list.get_ref()), Role::Optional, &mut found);
        }
    }
    listed(text, placed_at(placed, &["build-system", "requires"]), Role::Build, &mut found);
    poetry(text, &table, &mut found);
    Manifest { requirements: found, is_open: is_dynamic(&table) }
}

fn poetry(text: &str, table: &Table, found: &mut Vec<Requirement>) {
    let mut take = |keys: &[&str], role: Role| {
        let packages = at(table, keys).and_then(Value::as_table);
        named(text, (keys.join(".").as_str(), packages), role, found);
    };
    take(&["tool", "poetry", "dependencies"], Role::Needed);
    take(&["tool", "poetry", "dev-dependencies"], Role::Optional);
    for group in at(table, &["tool", "poetry", "group"]).and_then(Value::as_table).into_iter().flat_map(Table::keys) {
        take(&["tool", "poetry", "group", group.as_str(), "dependencies"], Role::Optional);
    }
}

pub(super) fn pipfile(text: &str) -> Manifest {
    let Ok(table) = toml::from_str::<Table>(text) else { return Manifest::unknown() };
    let mut found = Vec::new();
    for (list, role) in [("packages", Role::Needed), ("dev-packages", Role::Optional)] {
        named(text, (list, table.get(list).and_then(Value::as_table)), role, &mut found);
    }
    Manifest { requirements: found, is_open: false }
}

/// Whether the project says that something else declares its packages.
fn is_dynamic(table: &Table) -> bool {
    let dynamic = at(table, &["project", "dynamic"]).and_then(Value::as_array).into_iter().flatten();
    dynamic.filter_map(Value::as_str).any(|one| matches!(one, "dependencies" | "optional-dependencies"))
}

fn at<'t>(table: &'t Table, keys: &[&str]) -> Option<&'t Value> {
    let (first, rest) = keys.split_first()?;
    rest.iter().try_fold(table.get(*first)?, |value, key| value.get(*key))
}

fn placed_at<'t, 'i>(table: &'t DeTable<'i>, keys: &[&str]) -> Option<&'t DeValue<'i>> {
    let (first, rest) = keys.split_first()?;
    let mut value = table.get(*first)?.get_ref();
    for key in rest {
        value = value.get(*key)?.get_ref();
    }
    Some(value)
}

/// Requirements as texts, each where it stands: another text may hold its words before it.
fn listed(text: &str, list: Option<&DeValue<'_>>, role: Role, found: &mut Vec<Requirement>) {
    for one in list.and_then(|list| list.as_array()).into_iter().flat_map(|list| list.iter()) {
        let Some(requirement) = one.get_ref().as_str() else { continue };
        let before = &text[..text.floor_char_boundary(one.span().start)];
        found.extend(Requirement::read(requirement, before.matches('\n').count() + 1, role));
    }
}

/// Packages with what a table says of their versions.
fn named(text: &str, (head, packages): (&str, Option<&Table>), role: Role, found: &mut Vec<Requirement>) {
    for (name, said) in packages.into_iter().flatten().filter(|(name, _)| *name != "python") {
        let version = said.as_str().or_else(|| said.get("version").and_then(Value::as_str));
        let is_optional = said.get("optional").and_then(Value::as_bool).unwrap_or(false);
        found.push(Requirement {
            package: package(name),
            line: line_of(text, head, name),
            // What comes from a path or a repository, or has several constraints, has no version here.
            is_pinned: version.is_none_or(|version| !ANY.contains(&version.trim())),
            exact: version.and_then(|version| exact(version.trim_start_matches('='))).filter(|_| !is_several(version)),
            role: if is_optional { Role::Optional } else { role },
        });
    }
}

/// Whether a constraint allows one version or another.
fn is_several(version: Option<&str>) -> bool {
    version.is_some_and(|version| version.contains("||"))
}

/// Where a key stands below the head of its table, or as the head of its own.
fn line_of(text: &str, head: &str, key: &str) -> usize {
    let (own, of_key) = (format!("[{head}]"), format!("[{head}.{key}]"));
    let is_key = |line: &str| {
        let plain = line.strip_prefix('"').or_else(|| line.strip_prefix('\'')).unwrap_or(line);
        plain.strip_prefix(key).is_some_and(|rest| rest.trim_start_matches(['"', '\'']).trim_start().starts_with('='))
    };
    let begin = text.lines().position(|line| line.trim() == own).unwrap_or(0);
    let found = text.lines().skip(begin).position(|line| is_key(line.trim_start()) || line.trim() == of_key);
    found.map_or(1, |index| begin + index + 1)
}
