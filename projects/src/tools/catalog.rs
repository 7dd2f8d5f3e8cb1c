//! The tools that can be installed into the private folder: which version, by which client, and locked to what.

/// Who installs a tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Client {
    /// Python's. Wheels alone, each with a known hash: nothing of a package is executed.
    Pip,
    /// Node's. What the lock file names, each with a known hash, without the scripts of packages.
    Npm,
    /// Go's. The checksum database holds its sums; building executes nothing of a module.
    Go,
}

impl Client {
    /// As it is called.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Pip => "pip",
            Self::Npm => "npm",
            Self::Go => "go",
        }
    }
}

/// What a client is told.
#[derive(Debug, Clone, Copy)]
pub(super) enum Wanted {
    /// Requirements with hashes.
    Requirements(&'static str),
    /// `package.json` and `package-lock.json`.
    Lock(&'static str, &'static str),
    /// A package of Go without its version.
    Module(&'static str),
}

/// What starts a tool, by its path in the tool's folder.
#[derive(Debug, Clone, Copy)]
pub(super) enum Starter {
    /// A program.
    Program(&'static str),
    /// A script of Python.
    Python(&'static str),
    /// A script of Node.
    Node(&'static str),
}

impl Starter {
    /// The path.
    pub(super) fn path(self) -> &'static str {
        match self {
            Self::Program(path) | Self::Python(path) | Self::Node(path) => path,
        }
    }
}

/// A tool that can be installed.
#[derive(Debug, Clone, Copy)]
pub(super) struct Package {
    /// As reports name it.
    pub(super) name: &'static str,
    pub(super) version: &'static str,
    pub(super) client: Client,
    pub(super) wanted: Wanted,
    pub(super) starter: Starter,
    /// Settings of ours that lie beside it: the name of the file, and its text.
    pub(super) config: Option<(&'static str, &'static str)>,
    /// Says its version and ends: shows that it starts.
    pub(super) version_argument: &'static str,
}

/// `data/tools` has their locks; the test below holds the versions together.
pub(super) static PACKAGES: &[Package] = &[
    Package {
        name: "ruff",
        version: "0.17.6",
        client: Client::Pip,
        wanted: Wanted::Requirements(include_str!("../../data/tools/ruff.txt")),
        starter: Starter::Program("site/bin/ruff"),
        config: None,
        version_argument: "--version",
    },
    Package {
        name: "mypy",
        version: "2.4.1",
        client: Client::Pip,
        wanted: Wanted::Requirements(include_str!("../../data/tools/mypy.txt")),
        starter: Starter::Python("site/bin/mypy"),
        config: None,
        version_argument: "--version",
    },
    Package {
        name: "pyright",
        version: "1.1.414",
        client: Client::Npm,
        wanted: Wanted::Lock(
            include_str!("../../data/tools/pyright.package.json"),
            include_str!("../../data/tools/pyright.lock.json"),
        ),
        starter: Starter::Node("node_modules/pyright/index.js"),
        config: None,
        version_argument: "--version",
    },
    Package {
        name: "ty",
        version: "0.0.108",
        client: Client::Pip,
        wanted: Wanted::Requirements(include_str!("../../data/tools/ty.txt")),
        starter: Starter::Program("site/bin/ty"),
        config: None,
        version_argument: "--version",
    },
    Package {
        name: "eslint",
        version: "9.39.5",
        client: Client::Npm,
        wanted: Wanted::Lock(
            include_str!("../../data/tools/eslint.package.json"),
            include_str!("../../data/tools/eslint.lock.json"),
        ),
        starter: Starter::Node("node_modules/eslint/bin/eslint.js"),
        config: None,
        version_argument: "--version",
    },
    Package {
        name: "typescript-eslint",
        version: "8.73.0",
        client: Client::Npm,
        wanted: Wanted::Lock(
            include_str!("../../data/tools/typescript-eslint.package.json"),
            include_str!("../../data/tools/typescript-eslint.lock.json"),
        ),
        starter: Starter::Node("node_modules/eslint/bin/eslint.js"),
        config: Some(("riverrun.eslint.config.mjs", include_str!("../../data/tools/typescript-eslint.config.mjs"))),
        version_argument: "--version",
    },
    Package {
        name: "tsc",
        version: "5.9.3",
        client: Client::Npm,
        wanted: Wanted::Lock(
            include_str!("../../data/tools/typescript.package.json"),
            include_str!("../../data/tools/typescript.lock.json"),
        ),
        starter: Starter::Node("node_modules/typescript/bin/tsc"),
        config: None,
        version_argument: "--version",
    },
    Package {
        name: "staticcheck",
        version: "v0.8.2",
        client: Client::Go,
        wanted: Wanted::Module("honnef.co/go/tools/cmd/staticcheck"),
        starter: Starter::Program("bin/staticcheck"),
        config: None,
        version_argument: "-version",
    },
];

/// The tool of that name.
pub(super) fn package(name: &str) -> Option<&'static Package> {
    PACKAGES.iter().find(|package| package.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn given_the_locks_when_they_are_read_then_each_has_its_version_and_a_hash_for_all_that_is_fetched() {
        for package in PACKAGES {
            match package.wanted {
                Wanted::Requirements(text) => {
                    assert!(text.contains(&format!("{}=={} ", package.name, package.version)), "{}", package.name);
                    // A requirement is a line that is not indented; its hashes stand below it.
                    let lines: Vec<&str> = text.lines().collect();
                    for (index, line) in lines.iter().enumerate().filter(|(_, line)| !line.starts_with(' ')) {
                        let next = lines.get(index + 1).copied().unwrap_or_default();
                        assert!(line.contains("==") && next.trim().starts_with("--hash=sha256:"), "{line}");
                    }
                }
                Wanted::Lock(manifest, lock) => {
                    let manifest: serde_json::Value = serde_json::from_str(manifest).unwrap();
                    let lock: serde_json::Value = serde_json::from_str(lock).unwrap();
                    assert_eq!(lock["packages"][""]["dependencies"], manifest["dependencies"], "{}", package.name);
                    let wanted = manifest["dependencies"].as_object().unwrap();
                    let own = wanted.get(package.name).or(wanted.values().next().filter(|_| wanted.len() == 1));
                    assert_eq!(own.unwrap(), package.version, "{}", package.name);
                    for (name, version) in wanted {
                        let locked = &lock["packages"][format!("node_modules/{name}")]["version"];
                        assert_eq!(locked, version, "{} {name}", package.name);
                        // What is a tool of its own, too, is the same one.
                        let alone = super::package(name).map(|tool| tool.version);
                        assert!(alone.is_none_or(|alone| version == alone), "{} {name}", package.name);
                    }
                    for (path, one) in lock["packages"].as_object().unwrap().iter().filter(|(path, _)| !path.is_empty())
                    {
                        let hash = one["integrity"].as_str().unwrap_or_default();
                        assert!(hash.starts_with("sha512-"), "{} {path}", package.name);
                        assert_ne!(one["hasInstallScript"], true, "{} {path}: its script would not run", package.name);
                    }
                }
                Wanted::Module(module) => assert!(module.contains('/') && package.version.starts_with('v')),
            }
        }
    }
}
