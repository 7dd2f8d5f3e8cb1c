//! The table of tools: program, arguments, exit codes that are a result, and who reads the answer.

use super::read::{self, Said};
use crate::finding::Finding;
use crate::language::Language;

/// A second call, when the first breaks off for a reason that other arguments do away with.
pub(super) struct Again {
    /// What it says then: one of these.
    pub(super) signs: &'static [&'static str],
    /// Arguments that are added.
    pub(super) arguments: &'static [&'static str],
    /// What the report says of it.
    pub(super) told: &'static str,
}

/// A linter or type checker.
pub(super) struct Tool {
    /// How reports name it.
    pub(super) name: &'static str,
    /// The program on the `PATH`, as an operator allows it.
    pub(super) program: &'static str,
    /// Of tools with the same job one is run.
    pub(super) job: &'static str,
    /// A program of the `PATH` that it starts by itself.
    pub(super) helper: Option<&'static str>,
    /// Languages that it reads.
    pub(super) languages: &'static [Language],
    /// A file at the top of the project without which it has nothing to do.
    pub(super) needs: Option<&'static str>,
    /// Whether what it says of a file needs no other file.
    pub(super) by_file: bool,
    /// Whether it executes code of the project: build scripts, macros.
    pub(super) executes: bool,
    /// Whether only the one of the folder of our own will do, which comes with settings and what these need.
    pub(super) is_private: bool,
    /// Its arguments, from the folder that it reads and begins in. Settings of the project are not read.
    pub(super) arguments: fn(&str) -> Vec<String>,
    /// Its environment.
    pub(super) environment: &'static [(&'static str, &'static str)],
    /// Exit codes with which an answer is one.
    pub(super) done: &'static [i32],
    /// What to do when it breaks off.
    pub(super) again: Option<Again>,
    /// Reads its answer; `None` when it is none.
    pub(super) read: fn(&Said<'_>) -> Option<Vec<Finding>>,
    /// Counts the files that it says it did not understand, and of which it therefore says nothing.
    pub(super) unread: Option<fn(&Said<'_>) -> usize>,
    /// What installs it.
    pub(super) install: &'static str,
    /// What to do about a finding of a rule when it does not say so itself.
    pub(super) advice: fn(&str) -> String,
}

/// A project for `tsc` that takes every file and no plugin, and no type that is not in the copy.
pub(super) const TSCONFIG: &str = "riverrun.tsconfig.json";
pub(super) const TSCONFIG_TEXT: &str = r#"{"compilerOptions":{"noEmit":true,"target":"es2022","module":"esnext","moduleResolution":"bundler",
"jsx":"preserve","skipLibCheck":true,"types":[],"strict":false,"allowImportingTsExtensions":true},"include":["**/*"]}"#;

/// The rule of a compiler's error that has no code, such as one of the syntax.
pub(super) const PLAIN_ERROR: &str = "error";

/// Rules of ESLint that are defects in any program: none needs to know globals or is a matter of style.
const ESLINT_RULES: [&str; 32] = [
    "constructor-super",
    "eqeqeq",
    "for-direction",
    "getter-return",
    "no-async-promise-executor",
    "no-class-assign",
    "no-compare-neg-zero",
    "no-cond-assign",
    "no-const-assign",
    "no-constant-condition",
    "no-debugger",
    "no-delete-var",
    "no-dupe-args",
    "no-dupe-class-members",
    "no-dupe-else-if",
    "no-dupe-keys",
    "no-duplicate-case",
    "no-empty",
    "no-eval",
    "no-ex-assign",
    "no-fallthrough",
    "no-func-assign",
    "no-import-assign",
    "no-self-assign",
    "no-self-compare",
    "no-sparse-arrays",
    "no-this-before-super",
    "no-unreachable",
    "no-unsafe-finally",
    "no-unused-vars",
    "use-isnan",
    "valid-typeof",
];

/// Go without a compiler of C, a network and the settings of its user.
const GO_ALONE: &[(&str, &str)] = &[
    ("CGO_ENABLED", "0"),
    ("GOENV", "off"),
    ("GOFLAGS", "-buildvcs=false"),
    ("GOPROXY", "off"),
    ("GOTELEMETRY", "off"),
    ("GOTOOLCHAIN", "local"),
    ("GOWORK", "off"),
];

const PYTHON: &[Language] = &[Language::Python];
const TYPESCRIPT: &[Language] = &[Language::TypeScript, Language::Tsx];

/// The tools; of those with one job the one that is preferred first.
pub(super) static TOOLS: &[Tool] = &[
    Tool {
        name: "ruff",
        program: "ruff",
        job: "lint python",
        helper: None,
        languages: PYTHON,
        needs: None,
        by_file: true,
        executes: false,
        is_private: false,
        arguments: |place| {
            list(&["check", "--isolated", "--no-cache", "--exit-zero", "--output-format", "json", place])
        },
        environment: &[],
        done: &[0],
        again: None,
        read: read::ruff,
        unread: None,
        install: "pip install ruff",
        advice: |rule| format!("`ruff rule {rule}` explains it and shows what is right"),
    },
    Tool {
        name: "mypy",
        program: "mypy",
        job: "types python",
        helper: None,
        languages: PYTHON,
        needs: None,
        by_file: false,
        executes: false,
        is_private: false,
        arguments: |place| {
            list(&[
                "--config-file=",
                "--no-incremental",
                "--ignore-missing-imports",
                "--show-column-numbers",
                "--no-error-summary",
                "--no-color-output",
                "--cache-dir=/dev/null",
                place,
            ])
        },
        environment: &[("PYTHONSAFEPATH", "1")],
        done: &[0, 1],
        // Many projects have several `setup.py` and `conf.py`.
        again: Some(Again {
            signs: &["Duplicate module named", "Source file found twice under different module names"],
            arguments: &["--explicit-package-bases", "--namespace-packages"],
            told: "modules are named by their folders, since several have the same name",
        }),
        read: read::mypy,
        unread: None,
        install: "pip install mypy",
        advice: |rule| format!("correct the types, or say that it is meant: # type: ignore[{rule}]"),
    },
    Tool {
        name: "pyright",
        program: "pyright",
        job: "types python",
        helper: None,
        languages: PYTHON,
        needs: None,
        by_file: false,
        executes: false,
        is_private: false,
        arguments: |place| list(&["--outputjson", place]),
        // It asks Python for its folders: not for a module of the project that has the name of one of them.
        environment: &[("PYTHONSAFEPATH", "1")],
        done: &[0, 1],
        again: None,
        read: read::pyright,
        unread: None,
        install: "pip install pyright",
        advice: |rule| format!("correct the types, or say that it is meant: # pyright: ignore[{rule}]"),
    },
    Tool {
        name: "ty",
        program: "ty",
        job: "types python",
        helper: None,
        languages: PYTHON,
        needs: None,
        by_file: false,
        executes: false,
        is_private: false,
        arguments: |place| {
            list(&["check", "--output-format", "concise", "--color", "never", "--no-progress", "--exit-zero", place])
        },
        environment: &[("PYTHONSAFEPATH", "1")],
        done: &[0],
        again: None,
        read: read::ty,
        unread: None,
        install: "pip install ty",
        advice: |rule| format!("correct the types, or say that it is meant: # ty: ignore[{rule}]"),
    },
    Tool {
        name: "eslint",
        program: "eslint",
        job: "lint javascript",
        helper: None,
        languages: &[Language::JavaScript],
        needs: None,
        by_file: true,
        executes: false,
        is_private: false,
        arguments: |_| {
            let rules = ESLINT_RULES.iter().flat_map(|rule| ["--rule".to_owned(), format!("{rule}: error")]);
            let fixed = ["--no-config-lookup", "--no-error-on-unmatched-pattern", "--format", "json"];
            // Elements stand in files of either name.
            let elements = ["--ext", ".jsx", "--parser-options", "ecmaFeatures:{jsx:true}"];
            list(&fixed).into_iter().chain(list(&elements)).chain(rules).chain([".".to_owned()]).collect()
        },
        environment: &[],
        done: &[0, 1],
        again: None,
        read: read::eslint,
        unread: Some(read::not_parsed),
        install: "npm install --global eslint (9.21 or later)",
        advice: of_eslint,
    },
    Tool {
        name: "typescript-eslint",
        program: "eslint",
        job: "lint typescript",
        helper: None,
        languages: TYPESCRIPT,
        needs: None,
        by_file: true,
        executes: false,
        is_private: true,
        arguments: |_| {
            let fixed = ["--no-config-lookup", "--no-error-on-unmatched-pattern", "--format", "json"];
            list(&fixed).into_iter().chain(["**/*.{ts,tsx,mts,cts}".to_owned()]).collect()
        },
        environment: &[],
        done: &[0, 1],
        again: None,
        read: read::typescript_eslint,
        unread: Some(read::not_parsed),
        install: "riverrun project tools install typescript-eslint",
        advice: of_eslint,
    },
    Tool {
        name: "tsc",
        program: "tsc",
        job: "types typescript",
        helper: None,
        languages: TYPESCRIPT,
        needs: None,
        by_file: false,
        executes: false,
        is_private: false,
        arguments: |_| list(&["--project", TSCONFIG, "--pretty", "false"]),
        environment: &[],
        done: &[0, 1, 2],
        again: None,
        read: read::tsc,
        unread: None,
        install: "npm install --global typescript",
        advice: |_| "correct the types, or say that it is meant: // @ts-expect-error".to_owned(),
    },
    Tool {
        name: "go-vet",
        program: "go",
        job: "lint go",
        helper: None,
        languages: &[Language::Go],
        needs: Some("go.mod"),
        by_file: false,
        executes: false,
        is_private: false,
        arguments: |_| list(&["vet", "-json", "./..."]),
        environment: GO_ALONE,
        done: &[0],
        again: None,
        read: read::go_vet,
        unread: None,
        install: "install Go (1.26 or later): https://go.dev/dl",
        advice: |rule| format!("`go tool vet help {rule}` explains it"),
    },
    Tool {
        name: "staticcheck",
        program: "staticcheck",
        job: "defects go",
        helper: Some("go"),
        languages: &[Language::Go],
        needs: Some("go.mod"),
        by_file: false,
        executes: false,
        is_private: false,
        arguments: |_| list(&["-f", "json", "./..."]),
        environment: GO_ALONE,
        done: &[0, 1],
        again: None,
        read: read::staticcheck,
        unread: None,
        install: "go install honnef.co/go/tools/cmd/staticcheck@v0.8.2",
        advice: |rule| format!("`staticcheck -explain {rule}` explains it and shows what is right"),
    },
    Tool {
        name: "clippy",
        program: "cargo-clippy",
        job: "lint rust",
        helper: None,
        languages: &[Language::Rust],
        needs: Some("Cargo.toml"),
        by_file: false,
        executes: true,
        is_private: false,
        arguments: |_| list(&["clippy", "--offline", "--workspace", "--message-format=json", "--quiet"]),
        environment: &[("CARGO_TERM_COLOR", "never")],
        done: &[0, 101],
        again: None,
        read: read::clippy,
        unread: None,
        install: "rustup component add clippy",
        advice: of_clippy,
    },
];

/// The rules of a plugin are explained where it is.
fn of_eslint(rule: &str) -> String {
    match rule.strip_prefix("@typescript-eslint/") {
        Some(rule) => format!("https://typescript-eslint.io/rules/{rule} shows what is right"),
        None => format!("https://eslint.org/docs/latest/rules/{rule} shows what is right"),
    }
}

/// The lints of clippy and the errors of the compiler are explained; the compiler's own lints say what they want.
fn of_clippy(rule: &str) -> String {
    match rule.strip_prefix("clippy::") {
        Some(lint) => format!("`cargo clippy --explain {lint}` explains it and shows what is right"),
        None if rule == PLAIN_ERROR => "do what it says: nothing is built before".to_owned(),
        None if is_error(rule) => format!("`rustc --explain {rule}` explains it"),
        None => format!("do what it says, or say that it is meant: #[allow({rule})]"),
    }
}

/// Whether a rule is an error of the compiler, and no lint.
pub(super) fn is_error(rule: &str) -> bool {
    let number = rule.strip_prefix('E').filter(|number| !number.is_empty());
    rule == PLAIN_ERROR || number.is_some_and(|number| number.bytes().all(|byte| byte.is_ascii_digit()))
}

fn list(arguments: &[&str]) -> Vec<String> {
    arguments.iter().map(|one| (*one).to_owned()).collect()
}
