//! Under which licence a package is: as its lock file says, as what is installed or vendored in the copy says of itself, or as a table
//! of the operator says. What none of them knows is not guessed.

use std::collections::BTreeMap;
use std::path::Path;

use super::packages::{Package, packages, pypi};
use super::spdx::duty;
use crate::copy::Files;

/// Largest table, in bytes.
const MAX_TABLE: u64 = 32 << 20;

/// Licences that Python packages name by their classifiers (<https://pypi.org/classifiers/>) or in plain words. A kind of licences
/// without a number or version is a reference of its own.
const CLASSIFIERS: [(&str, &str); 27] = [
    ("MIT License", "MIT"),
    ("MIT No Attribution License (MIT-0)", "MIT-0"),
    ("Apache Software License", "Apache-2.0"),
    ("BSD License", "LicenseRef-BSD"),
    ("ISC License (ISCL)", "ISC"),
    ("Mozilla Public License 1.1 (MPL 1.1)", "MPL-1.1"),
    ("Mozilla Public License 2.0 (MPL 2.0)", "MPL-2.0"),
    ("Python Software Foundation License", "PSF-2.0"),
    ("GNU General Public License (GPL)", "GPL-1.0-or-later"),
    ("GNU General Public License v2 (GPLv2)", "GPL-2.0-only"),
    ("GNU General Public License v2 or later (GPLv2+)", "GPL-2.0-or-later"),
    ("GNU General Public License v3 (GPLv3)", "GPL-3.0-only"),
    ("GNU General Public License v3 or later (GPLv3+)", "GPL-3.0-or-later"),
    ("GNU Library or Lesser General Public License (LGPL)", "LGPL-2.0-or-later"),
    ("GNU Lesser General Public License v2 (LGPLv2)", "LGPL-2.0-only"),
    ("GNU Lesser General Public License v2 or later (LGPLv2+)", "LGPL-2.0-or-later"),
    ("GNU Lesser General Public License v3 (LGPLv3)", "LGPL-3.0-only"),
    ("GNU Lesser General Public License v3 or later (LGPLv3+)", "LGPL-3.0-or-later"),
    ("GNU Affero General Public License v3", "AGPL-3.0-only"),
    ("GNU Affero General Public License v3 or later (AGPLv3+)", "AGPL-3.0-or-later"),
    ("The Unlicense (Unlicense)", "Unlicense"),
    ("Public Domain", "LicenseRef-public-domain"),
    ("zlib/libpng License", "Zlib"),
    ("Zope Public License", "ZPL-2.1"),
    ("Boost Software License 1.0 (BSL-1.0)", "BSL-1.0"),
    ("Eclipse Public License 2.0 (EPL-2.0)", "EPL-2.0"),
    ("Historical Permission Notice and Disclaimer (HPND)", "HPND"),
];

/// Licences by ecosystem, name and, where it matters, version: lines such as `PyPI requests Apache-2.0` and
/// `crates.io ring@0.16.20 LicenseRef-ring`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LicenceTable(BTreeMap<String, String>);

impl LicenceTable {
    /// Reads a file; without one the table is empty. Blocks.
    ///
    /// # Errors
    /// Says why the file can't be read, with the line that is none.
    pub fn load(path: Option<&Path>) -> Result<Self, String> {
        let Some(path) = path else { return Ok(Self::default()) };
        let about = std::fs::metadata(path).map_err(|error| error.to_string())?;
        if about.len() > MAX_TABLE {
            return Err(format!("it has more than {MAX_TABLE} bytes"));
        }
        Self::read(&std::fs::read_to_string(path).map_err(|error| error.to_string())?)
    }

    /// Reads lines.
    ///
    /// # Errors
    /// Says which line is none.
    pub fn read(text: &str) -> Result<Self, String> {
        let mut table = BTreeMap::new();
        for (index, line) in text.lines().enumerate() {
            let line = line.split('#').next().unwrap_or_default().trim();
            if line.is_empty() {
                continue;
            }
            let parts = line.split_once(char::is_whitespace).and_then(|(ecosystem, rest)| {
                let (package, expression) = rest.trim_start().split_once(char::is_whitespace)?;
                Some((ecosystem, package, expression.trim()))
            });
            let Some((ecosystem, package, expression)) = parts else {
                return Err(format!("line {} has no ecosystem, package and licence", index + 1));
            };
            duty(expression)
                .map_err(|why| format!("line {}: {expression:?} is no SPDX expression: {why}", index + 1))?;
            table.insert(key(ecosystem, package), expression.to_owned());
        }
        Ok(Self(table))
    }

    fn of(&self, package: &Package) -> Option<&String> {
        let of_version = self.0.get(&key(package.ecosystem, &format!("{}@{}", package.name, package.version)));
        of_version.or_else(|| self.0.get(&key(package.ecosystem, &package.name)))
    }
}

fn key(ecosystem: &str, package: &str) -> String {
    let (name, version) = match package.rsplit_once('@') {
        // Names of npm may begin with it.
        Some((name, version)) if !name.is_empty() => (name, Some(version)),
        _ => (package, None),
    };
    let name = if ecosystem == "PyPI" { pypi(name) } else { name.to_owned() };
    version.map_or_else(|| format!("{ecosystem} {name}"), |version| format!("{ecosystem} {name}@{version}"))
}

/// Every package with an exact version, those that are only installed too, with its licence as far as it is known.
pub(super) fn licensed(files: &Files, table: &LicenceTable) -> Vec<Package> {
    let installed = installed(files);
    let by_key = |package: &Package| key(package.ecosystem, &format!("{}@{}", package.name, package.version));
    let known: BTreeMap<String, &Package> = installed.iter().map(|one| (by_key(one), one)).collect();
    let (mut all, _) = packages(files);
    let named: std::collections::BTreeSet<String> = all.iter().map(by_key).collect();
    for package in &mut all {
        if package.licence.is_none() {
            package.licence = known.get(&by_key(package)).and_then(|one| one.licence.clone());
        }
    }
    all.extend(installed.iter().filter(|one| !named.contains(&by_key(one))).cloned());
    for package in &mut all {
        if package.licence.is_none() {
            package.licence = table.of(package).cloned();
        }
    }
    all
}

/// Whether a file is part of a package of others that lies in the copy.
pub(crate) fn is_vendored(path: &str) -> bool {
    let folders = path.rsplit_once('/').map_or("", |(folders, _)| folders);
    folders.split('/').any(|part| matches!(part, "vendor" | "_vendor" | "third_party" | "site-packages"))
}

/// Packages that lie in the copy: metadata of Python, manifests of crates below `vendor`.
fn installed(files: &Files) -> Vec<Package> {
    let read = |(path, content): (&String, &bytes::Bytes)| {
        let (folder, name) = path.rsplit_once('/')?;
        let text = String::from_utf8_lossy(content);
        let (ecosystem, name, version, licence) = match name {
            "METADATA" if folder.ends_with(".dist-info") => of_metadata(&text)?,
            "PKG-INFO" if folder.ends_with(".egg-info") && is_vendored(path) => of_metadata(&text)?,
            "Cargo.toml" if is_vendored(path) => of_crate(&text)?,
            _ => return None,
        };
        Some(Package { ecosystem, name, version, file: path.clone(), line: 1, licence })
    };
    files.iter().filter_map(read).collect()
}

type About = (&'static str, String, String, Option<String>);

fn of_crate(text: &str) -> Option<About> {
    let manifest: toml::Table = toml::from_str(text).ok()?;
    let package = manifest.get("package")?;
    let field = |name: &str| package.get(name).and_then(toml::Value::as_str);
    // Older crates write alternatives with a slash.
    let licence = field("license").map(|licence| licence.replace('/', " OR "));
    Some(("crates.io", field("name")?.to_owned(), field("version")?.to_owned(), licence))
}

/// What Python's classifiers say, of which one may be chosen; `None` without one of a known licence.
pub(super) fn classified<'c>(classifiers: impl Iterator<Item = &'c str>) -> Option<String> {
    let licences = classifiers.filter(|one| one.starts_with("License :: "));
    let ids: Vec<&str> = licences.filter_map(|one| named(one.rsplit(" :: ").next().unwrap_or_default())).collect();
    (!ids.is_empty()).then(|| ids.join(" OR "))
}

/// Words that are an expression, or the name of a known licence.
pub(super) fn in_words(words: &str) -> Option<String> {
    if duty(words).is_ok() { Some(words.to_owned()) } else { named(words).map(str::to_owned) }
}

fn named(words: &str) -> Option<&'static str> {
    CLASSIFIERS.iter().find(|(name, _)| *name == words.trim()).map(|(_, id)| *id)
}

/// The expression; else what the classifiers say, of which one may be chosen; else the words, when they are an expression or a name.
fn of_metadata(text: &str) -> Option<About> {
    let head: Vec<(&str, &str)> =
        text.lines().take_while(|line| !line.trim().is_empty()).filter_map(|line| line.split_once(": ")).collect();
    let field = |name: &str| head.iter().find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim());
    let classifiers = head.iter().filter(|(key, _)| *key == "Classifier").map(|(_, value)| *value);
    let expression = field("License-Expression").map(str::to_owned);
    let licence = expression.or_else(|| classified(classifiers));
    let licence = licence.or_else(|| field("License").and_then(in_words));
    Some(("PyPI", pypi(field("Name")?), field("Version")?.to_owned(), licence))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn given_metadata_of_packages_when_they_are_read_then_their_licence_is_what_they_say_or_not_known() {
        for (fields, expected) in [
            ("License-Expression: MIT OR Apache-2.0\nLicense: whatever\n", Some("MIT OR Apache-2.0")),
            ("Classifier: License :: OSI Approved :: MIT License\n", Some("MIT")),
            (
                "Classifier: License :: OSI Approved :: Apache Software License\nClassifier: License :: OSI Approved :: BSD License\n",
                Some("Apache-2.0 OR LicenseRef-BSD"),
            ),
            ("License: BSD-3-Clause\n", Some("BSD-3-Clause")),
            ("License: MIT License\n", Some("MIT")),
            ("License: see the file\nClassifier: Topic :: Software\n", None),
            ("\nLicense: MIT\n", None),
        ] {
            let text = format!("Metadata-Version: 2.1\nName: My_Pkg\nVersion: 1.0\n{fields}\nText.\n");
            let (ecosystem, name, version, licence) = of_metadata(&text).unwrap();
            assert_eq!((ecosystem, name.as_str(), version.as_str()), ("PyPI", "my-pkg", "1.0"));
            assert_eq!(licence.as_deref(), expected, "{fields}");
        }
        let (_, name, _, licence) =
            of_crate("[package]\nname = \"a\"\nversion = \"1.0.0\"\nlicense = \"MIT/Apache-2.0\"\n").unwrap();
        assert_eq!((name.as_str(), licence.as_deref()), ("a", Some("MIT OR Apache-2.0")));
    }

    #[test]
    fn given_a_table_when_it_is_read_then_versions_go_before_names_and_what_is_no_line_is_told() {
        let table = LicenceTable::read("# mine\nPyPI My.Pkg MIT\nPyPI my_pkg@2.0 GPL-3.0-only # since\nnpm @a/b ISC\n")
            .unwrap();
        let of = |ecosystem, name: &str, version: &str| {
            let (name, version, file) = (name.to_owned(), version.to_owned(), String::new());
            table.of(&Package { ecosystem, name, version, file, line: 1, licence: None }).cloned()
        };
        assert_eq!(of("PyPI", "my-pkg", "1.0").as_deref(), Some("MIT"));
        assert_eq!(of("PyPI", "my-pkg", "2.0").as_deref(), Some("GPL-3.0-only"));
        assert_eq!(of("npm", "@a/b", "1.0").as_deref(), Some("ISC"));
        assert_eq!(of("crates.io", "my-pkg", "1.0"), None);
        for (text, why) in [("PyPI a", "line 1"), ("# x\nPyPI a My own", "line 2")] {
            assert!(LicenceTable::read(text).unwrap_err().contains(why), "{text}");
        }
    }
}
