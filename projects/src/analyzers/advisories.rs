//! Versions with known vulnerabilities, by a folder of advisories as OSV writes them (<https://ossf.github.io/osv-schema/>). Nothing is
//! fetched: whoever runs this keeps the folder. Without one it is said that nothing was checked.

use std::cmp::Ordering;
use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};

use riverrun_schemas::{agreed, counted};
use serde_json::Value;

use super::packages::{MAX_PACKAGES, Package, packages, pypi};
use super::{ToolRun, cvss};
use crate::copy::Files;
use crate::finding::{Finding, Severity};

/// Its name.
pub(super) const TOOL: &str = "advisories";
/// Most files of the folder that are read.
const MAX_ADVISORIES: usize = 300_000;
/// Largest one, in bytes.
const MAX_BYTES: u64 = 4 << 20;
/// How deep folders are looked into.
const MAX_DEPTH: usize = 4;

/// What is wrong with packages that have an exact version. Blocks.
pub(super) fn analyze(files: &Files, folder: Option<&Path>) -> (ToolRun, Vec<Finding>) {
    let told = |status: &str, findings: usize, detail: Option<String>, fix: Option<&str>| ToolRun {
        name: TOOL.to_owned(),
        status: status.to_owned(),
        findings,
        took_ms: 0,
        detail,
        fix: fix.map(str::to_owned),
    };
    let Some(folder) = folder else {
        let why = "not checked: there is no folder of advisories".to_owned();
        let fix = "name one that holds OSV's JSON files: RIVERRUN_PROJECT_ADVISORIES";
        return (told("skipped", 0, Some(why), Some(fix)), Vec::new());
    };
    let (packages, is_cut) = packages(files);
    let mut by_name: HashMap<(&str, &str), Vec<&Package>> = HashMap::new();
    for package in &packages {
        by_name.entry((package.ecosystem, package.name.as_str())).or_default().push(package);
    }
    let (paths, has_more) = match listed(folder, MAX_ADVISORIES) {
        Ok((paths, has_more)) if !paths.is_empty() => (paths, has_more),
        other => {
            let why = other.err().map_or("it has no JSON file".to_owned(), |error| error.to_string());
            let fix = "unpack OSV's files of an ecosystem there";
            return (
                told("failed", 0, Some(format!("not checked: the folder of advisories: {why}")), Some(fix)),
                Vec::new(),
            );
        }
    };
    let (mut found, mut told_of) = (Vec::new(), ToldOf::new());
    let mut unread = 0_usize;
    if !by_name.is_empty() {
        for path in &paths {
            match read(path) {
                Some(advisory) => judge(&advisory, &by_name, &mut told_of, &mut found),
                None => unread += 1,
            }
        }
    }
    let fix = match (has_more, is_cut) {
        (true, _) => Some("keep the advisories of the ecosystems that you use there, and no others"),
        (false, true) => Some("import parts of the project by themselves"),
        (false, false) => None,
    };
    (told("ran", found.len(), not_read((paths.len(), unread, has_more), is_cut), fix), found)
}

/// What is to be said of advisories and packages that did not count.
fn not_read((read, unread, has_more): (usize, usize, bool), is_cut: bool) -> Option<String> {
    let damaged = (unread > 0).then(|| format!("{unread} of {} can't be read", counted(read, "advisory")));
    let beyond = has_more.then(|| {
        format!("{} of the folder {} read, and it has more", counted(read, "advisory"), agreed(read, "is", "are"))
    });
    let cut = is_cut.then(|| format!("{MAX_PACKAGES} packages are looked up, and the project names more"));
    let told: Vec<String> = [damaged, beyond, cut].into_iter().flatten().collect();
    (!told.is_empty()).then(|| told.join("; "))
}

/// The files of a folder, `most` of them, and whether it has more. The same folder gives the same ones.
fn listed(folder: &Path, most: usize) -> std::io::Result<(Vec<PathBuf>, bool)> {
    let (mut found, mut has_more) = (Vec::new(), false);
    let mut open = vec![(folder.to_owned(), 0)];
    'folders: while let Some((folder, depth)) = open.pop() {
        let mut entries = std::fs::read_dir(&folder)?.collect::<std::io::Result<Vec<_>>>()?;
        entries.sort_by_key(std::fs::DirEntry::file_name);
        for entry in entries {
            let (path, kind) = (entry.path(), entry.file_type()?);
            if kind.is_dir() && depth < MAX_DEPTH {
                open.push((path, depth + 1));
            } else if kind.is_file() && path.extension().is_some_and(|end| end == "json") {
                has_more = found.len() >= most;
                if has_more {
                    break 'folders;
                }
                found.push(path);
            }
        }
    }
    found.sort();
    Ok((found, has_more))
}

fn read(path: &Path) -> Option<Value> {
    if std::fs::metadata(path).ok()?.len() > MAX_BYTES {
        return None;
    }
    serde_json::from_slice(&std::fs::read(path).ok()?).ok()
}

/// By file, line, name and version of a package, the names of what is told of it.
type ToldOf<'p> = HashMap<(&'p str, usize, &'p str, &'p str), HashSet<String>>;

fn judge<'p>(
    advisory: &Value,
    by_name: &HashMap<(&str, &str), Vec<&'p Package>>,
    told_of: &mut ToldOf<'p>,
    found: &mut Vec<Finding>,
) {
    if advisory["withdrawn"].is_string() {
        return;
    }
    let aliases = advisory["aliases"].as_array().into_iter().flatten();
    let names: Vec<&str> = std::iter::once(&advisory["id"]).chain(aliases).filter_map(Value::as_str).collect();
    let id = advisory["id"].as_str().unwrap_or("an advisory without an id");
    let summary: String = advisory["summary"].as_str().unwrap_or("no summary").chars().take(200).collect();
    let mut seen = HashSet::new();
    for affected in advisory["affected"].as_array().into_iter().flatten() {
        let ecosystem = affected["package"]["ecosystem"].as_str().unwrap_or_default();
        let name = affected["package"]["name"].as_str().unwrap_or_default();
        let name = if ecosystem == "PyPI" { pypi(name) } else { name.to_owned() };
        for package in by_name.get(&(ecosystem, name.as_str())).into_iter().flatten() {
            let place = (package.file.as_str(), package.line, package.name.as_str(), package.version.as_str());
            if !is_affected(affected, &package.version) || !seen.insert(place) {
                continue;
            }
            // Several databases tell of one vulnerability, each under a name of its own that the others know.
            let known = told_of.entry(place).or_default();
            let is_known = names.iter().any(|name| known.contains(*name));
            known.extend(names.iter().map(|name| (*name).to_owned()));
            if is_known {
                continue;
            }
            let message = format!("{} {} has {id}: {summary}", package.name, package.version);
            let fix = match fixed(affected, &package.version) {
                Some(version) => format!("take {version} or later"),
                None => "no version is fixed yet: take it out or read the advisory".to_owned(),
            };
            let rule = (TOOL, "known-vulnerability", severity(advisory, affected));
            found.push(Finding::new(rule, (package.file.as_str(), package.line, 1), message, fix));
        }
    }
}

/// By the word that databases write, else by the vector; those that have neither are taken to be bad.
fn severity(advisory: &Value, affected: &Value) -> Severity {
    let words = [&advisory["database_specific"]["severity"], &affected["database_specific"]["severity"]];
    match words.iter().find_map(|word| word.as_str()).unwrap_or_default().to_ascii_uppercase().as_str() {
        "CRITICAL" => Severity::Critical,
        "MODERATE" | "MEDIUM" => Severity::Medium,
        "LOW" => Severity::Low,
        "HIGH" => Severity::High,
        _ => by_vector(advisory, affected).unwrap_or(Severity::High),
    }
}

/// By the CVSS vectors of an advisory, which may be for one of its packages.
fn by_vector(advisory: &Value, affected: &Value) -> Option<Severity> {
    let lists = [&affected["severity"], &advisory["severity"]];
    let vectors = lists.into_iter().filter_map(Value::as_array).flatten().filter_map(|one| one["score"].as_str());
    // The worst is the least.
    vectors.filter_map(cvss::severity).min()
}

/// The evaluation of the schema: a version that is listed, or that is in a range.
fn is_affected(affected: &Value, version: &str) -> bool {
    let listed = affected["versions"].as_array().into_iter().flatten();
    if listed.filter_map(Value::as_str).any(|one| one == version) {
        return true;
    }
    let ranges = affected["ranges"].as_array().into_iter().flatten();
    ranges.filter(|range| range["type"] == "SEMVER" || range["type"] == "ECOSYSTEM").any(|range| {
        let mut is_in = false;
        for (event, at) in events(range) {
            let order = if at == "0" { Ordering::Greater } else { compare(version, at) };
            match event {
                "introduced" if order != Ordering::Less => is_in = true,
                "fixed" | "limit" if order != Ordering::Less => is_in = false,
                "last_affected" if order == Ordering::Greater => is_in = false,
                _ => {}
            }
        }
        is_in
    })
}

/// The events of a range in the order of their versions.
fn events(range: &Value) -> Vec<(&str, &str)> {
    let events = range["events"].as_array().into_iter().flatten().filter_map(Value::as_object);
    let mut all: Vec<(&str, &str)> =
        events.flatten().filter_map(|(event, at)| Some((event.as_str(), at.as_str()?))).collect();
    all.sort_by(|a, b| compare(a.1, b.1));
    all
}

/// The first fixed version that is later than the one at hand.
fn fixed(affected: &Value, version: &str) -> Option<String> {
    let ranges = affected["ranges"].as_array().into_iter().flatten().filter(|range| range["type"] != "GIT");
    let mut later: Vec<&str> = ranges
        .flat_map(events)
        .filter(|(event, at)| *event == "fixed" && compare(at, version) == Ordering::Greater)
        .map(|(_, at)| at)
        .collect();
    later.sort_by(|a, b| compare(a, b));
    later.first().map(|at| (*at).to_owned())
}

/// Numbers as numbers, words as words, and what has words after its numbers before what has none: 1.0rc1 < 1.0 < 1.0.post1 < 1.0.1.
/// What follows a `+` does not count.
fn compare(a: &str, b: &str) -> Ordering {
    let (a, b) = (parts(a), parts(b));
    let empty = Part::Number(0);
    for index in 0..a.len().max(b.len()) {
        let order = a.get(index).unwrap_or(&empty).cmp(b.get(index).unwrap_or(&empty));
        if order != Ordering::Equal {
            return order;
        }
    }
    Ordering::Equal
}

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Part {
    /// Of a version before a release: alpha, beta, rc, dev.
    Before(String),
    Number(u64),
}

fn parts(version: &str) -> Vec<Part> {
    let version = version.trim_start_matches(['v', 'V']).split('+').next().unwrap_or_default();
    let mut found = Vec::new();
    for piece in version.split(['.', '-', '_']) {
        let mut rest = piece;
        while !rest.is_empty() {
            let is_number = rest.starts_with(|c: char| c.is_ascii_digit());
            let end = rest.find(|c: char| c.is_ascii_digit() != is_number).unwrap_or(rest.len());
            let (head, tail) = rest.split_at(end);
            found.push(match head.parse() {
                Ok(number) => Part::Number(number),
                // Before every other word.
                Err(_) if head.eq_ignore_ascii_case("dev") => Part::Before(String::new()),
                // After a release; a number follows, which tells it from the release.
                Err(_) if head.eq_ignore_ascii_case("post") => Part::Number(0),
                Err(_) => Part::Before(head.to_ascii_lowercase()),
            });
            rest = tail;
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn given_versions_when_they_are_compared_then_releases_follow_what_comes_before_them() {
        let rising =
            ["0.9", "1.0.dev1", "1.0a1", "1.0-beta.2", "1.0rc1", "1.0", "1.0.post1", "1.0.1", "1.2", "1.10", "2"];
        for (earlier, later) in rising.iter().zip(&rising[1..]) {
            assert_eq!(compare(earlier, later), Ordering::Less, "{earlier} {later}");
        }
        assert_eq!(compare("v1.0", "1.0.0+build"), Ordering::Equal);
    }

    #[test]
    fn given_ranges_when_versions_are_judged_then_those_before_the_fix_are_affected() {
        let affected = json!({ "ranges": [{ "type": "SEMVER", "events": [{ "introduced": "1.0.0" }, { "fixed": "1.2.0" }, { "introduced": "2.0.0" }, { "last_affected": "2.1.0" }] }],
            "versions": ["0.1-odd"] });
        for (version, is) in [
            ("0.9.9", false),
            ("1.0.0", true),
            ("1.1.9", true),
            ("1.2.0", false),
            ("2.0.5", true),
            ("2.1.0", true),
            ("2.1.1", false),
            ("0.1-odd", true),
        ] {
            assert_eq!(is_affected(&affected, version), is, "{version}");
        }
        assert_eq!(fixed(&affected, "1.0.5").as_deref(), Some("1.2.0"));
        assert_eq!(fixed(&affected, "2.0.5"), None);
    }

    #[test]
    fn given_advisories_with_a_word_a_vector_or_nothing_when_they_are_judged_then_the_word_counts_first() {
        let vector = json!([{ "type": "CVSS_V3", "score": "CVSS:3.1/AV:N/AC:H/PR:N/UI:N/S:U/C:N/I:L/A:N" }]);
        let none = json!({});
        for (advisory, affected, expected) in [
            (json!({ "database_specific": { "severity": "MODERATE" }, "severity": vector }), &none, Severity::Medium),
            (json!({ "severity": vector }), &none, Severity::Low),
            (none.clone(), &json!({ "severity": vector }), Severity::Low),
            (json!({ "severity": [{ "type": "CVSS_V4", "score": "CVSS:4.0/AV:N" }] }), &none, Severity::High),
            (none.clone(), &none, Severity::High),
        ] {
            assert_eq!(severity(&advisory, affected), expected, "{advisory} {affected}");
        }
    }

    #[test]
    fn given_advisories_as_databases_write_them_when_their_vector_is_of_version_4_then_severities_follow_it() {
        let of = |score: &str| json!([{ "type": "CVSS_V4", "score": format!("CVSS:4.0/{score}") }]);
        let events = json!([{ "introduced": "0" }, { "fixed": "78.1.1" }]);
        let affected = |ecosystem: &str, name: &str, more: Value| {
            let mut affected = json!({ "package": { "ecosystem": ecosystem, "name": name },
                "ranges": [{ "type": if ecosystem == "PyPI" { "ECOSYSTEM" } else { "SEMVER" }, "events": events }] });
            affected["database_specific"] = more;
            json!([affected])
        };
        let high = of("AV:N/AC:L/AT:N/PR:N/UI:N/VC:N/VI:H/VA:N/SC:N/SI:N/SA:N/E:P/CR:X/IR:X/AR:X");
        let low = of("AV:L/AC:H/AT:P/PR:H/UI:A/VC:L/VI:N/VA:N/SC:N/SI:N/SA:N");
        let medium = of("AV:N/AC:L/AT:N/PR:N/UI:N/VC:L/VI:L/VA:L/SC:N/SI:N/SA:N");
        let folder = tempfile::tempdir().unwrap();
        for (file, advisory) in [
            // Of Python's own database, which writes no word.
            (
                "PYSEC-1.json",
                json!({ "id": "PYSEC-1", "schema_version": "1.7.3", "summary": "path traversal", "severity": high,
                    "affected": affected("PyPI", "setuptools", json!({ "source": "x" })) }),
            ),
            // Of RustSec: what is specific to it has a null for the vector.
            (
                "RUSTSEC-1.json",
                json!({ "id": "RUSTSEC-1", "summary": "race", "severity": low, "database_specific": { "license": "CC0-1.0" },
                    "affected": affected("crates.io", "time", json!({ "categories": [], "cvss": null, "informational": null })) }),
            ),
            // Of GitHub, which writes the word of the vector.
            (
                "GHSA-1.json",
                json!({ "id": "GHSA-1", "summary": "leak", "severity": medium,
                    "database_specific": { "cwe_ids": ["CWE-200"], "github_reviewed": true, "severity": "MODERATE" },
                    "affected": affected("npm", "lodash", json!({ "source": "x" })) }),
            ),
        ] {
            std::fs::write(folder.path().join(file), advisory.to_string()).unwrap();
        }
        let cargo = "[[package]]\nname = \"time\"\nversion = \"0.1.40\"\nsource = \"registry+x\"\n";
        let files = Files::from([
            ("Cargo.lock".to_owned(), cargo.into()),
            (
                "bun.lock".to_owned(),
                "{\"packages\": {\"lodash\": [\"lodash@4.17.20\", \"\", {}, \"sha512-x\"],},}".into(),
            ),
            ("requirements.txt".to_owned(), "setuptools==78.0.0\n".into()),
        ]);
        let (run, found) = analyze(&files, Some(folder.path()));
        let mut seen: Vec<_> = found.iter().map(|one| (one.file.as_str(), one.severity)).collect();
        seen.sort_unstable();
        let expected =
            [("Cargo.lock", Severity::Low), ("bun.lock", Severity::Medium), ("requirements.txt", Severity::High)];
        assert_eq!(seen, expected, "{run:?}");
    }

    #[test]
    fn given_one_vulnerability_in_several_databases_when_packages_are_judged_then_each_place_has_it_once() {
        let folder = tempfile::tempdir().unwrap();
        let write = |file: &str, id: &str, aliases: &[&str], name: &str| {
            let advisory = json!({ "id": id, "aliases": aliases, "summary": "bad", "affected": [
                { "package": { "ecosystem": "PyPI", "name": name }, "ranges": [{ "type": "ECOSYSTEM", "events": [{ "introduced": "0" }] }] },
            ] });
            std::fs::write(folder.path().join(file), advisory.to_string()).unwrap();
        };
        write("GHSA-1.json", "GHSA-1", &["CVE-1", "PYSEC-1"], "django");
        write("PYSEC-1.json", "PYSEC-1", &["CVE-1"], "Django");
        write("CVE-1.json", "CVE-1", &[], "flask");
        write("PYSEC-2.json", "PYSEC-2", &["CVE-2"], "django");
        let files = Files::from([
            ("a/requirements.txt".to_owned(), "django==2.1\nflask==1.0\n".into()),
            ("b/requirements.txt".to_owned(), "django==2.1\n".into()),
        ]);
        let (_, found) = analyze(&files, Some(folder.path()));
        let name = |one: &Finding| one.message.split(' ').nth(3).unwrap().trim_end_matches(':').to_owned();
        let mut told: Vec<(&str, usize, String)> =
            found.iter().map(|one| (one.file.as_str(), one.line, name(one))).collect();
        told.sort_unstable();
        let of = |file: &'static str, line, name: &str| (file, line, name.to_owned());
        let (a, b) = ("a/requirements.txt", "b/requirements.txt");
        let expected =
            [of(a, 1, "GHSA-1"), of(a, 1, "PYSEC-2"), of(a, 2, "CVE-1"), of(b, 1, "GHSA-1"), of(b, 1, "PYSEC-2")];
        assert_eq!(told, expected);
    }

    #[test]
    fn given_more_advisories_than_are_read_when_they_are_listed_then_the_report_says_so() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("npm")).unwrap();
        for file in ["a.json", "b.json", "npm/c.json", "README.md"] {
            std::fs::write(folder.path().join(file), "{}").unwrap();
        }
        for (most, read, has_more) in
            [(2, vec!["a.json", "b.json"], true), (3, vec!["a.json", "b.json", "npm/c.json"], false)]
        {
            let (paths, more) = listed(folder.path(), most).unwrap();
            let names: Vec<String> =
                paths.iter().map(|path| path.strip_prefix(folder.path()).unwrap().display().to_string()).collect();
            assert!(names == read && more == has_more, "{most}: {names:?} {more}");
        }
        assert_eq!(not_read((3, 0, false), false), None);
        let told = "1 of 2 advisories can't be read; 2 advisories of the folder are read, and it has more";
        assert_eq!(not_read((2, 1, true), false).as_deref(), Some(told));
        for (packages, is_told) in [(MAX_PACKAGES, false), (MAX_PACKAGES + 1, true)] {
            let files = Files::from([("requirements.txt".to_owned(), "a==1.0\n".repeat(packages).into())]);
            let (run, _) = analyze(&files, Some(folder.path()));
            let told = run.detail.unwrap_or_default();
            assert_eq!(told.contains("50000 packages are looked up, and the project names more"), is_told, "{told}");
            assert_eq!(run.fix.is_some(), is_told);
        }
    }

    #[test]
    fn given_a_folder_when_packages_are_judged_then_what_is_known_is_found_and_no_folder_is_no_clean_answer() {
        let folder = tempfile::tempdir().unwrap();
        let advisory = json!({ "id": "PYSEC-1", "summary": "bad", "affected": [{ "package": { "ecosystem": "PyPI", "name": "Django" },
            "ranges": [{ "type": "ECOSYSTEM", "events": [{ "introduced": "0" }, { "fixed": "2.2" }] }] }] });
        let withdrawn =
            json!({ "id": "PYSEC-2", "withdrawn": "2024-01-01T00:00:00Z", "affected": advisory["affected"] });
        std::fs::write(folder.path().join("a.json"), advisory.to_string()).unwrap();
        std::fs::write(folder.path().join("b.json"), withdrawn.to_string()).unwrap();
        std::fs::write(folder.path().join("c.json"), "no json").unwrap();
        let files = Files::from([("requirements.txt".to_owned(), "django==2.1\nflask==1.0\n".into())]);
        let (run, found) = analyze(&files, Some(folder.path()));
        assert_eq!((run.status.as_str(), found.len()), ("ran", 1), "{run:?}");
        assert!(found[0].message.contains("PYSEC-1") && found[0].fix.as_deref() == Some("take 2.2 or later"));
        assert!(run.detail.unwrap().contains("1 of 3"));

        for (folder, status) in [(None, "skipped"), (Some(Path::new("/no/such/folder")), "failed")] {
            let (run, found) = analyze(&files, folder);
            assert!(run.status == status && run.detail.unwrap().contains("not checked") && found.is_empty());
        }
    }
}
