//! Leaks of machine learning: what a model learns from data that it is tested on (Kaufman et al., "Leakage in data mining", 2012).
//! Python, one scope at a time; what goes through other functions is not followed.

use super::parsed;
use super::python_flow::{Assignment, Call, Scope, scopes};
use crate::copy::Files;
use crate::finding::{Finding, Severity};
use crate::language::Language;

pub(super) const TOOL: &str = "leakage";

/// Classes whose `fit` learns from data without a target.
const TRANSFORMERS: &[&str] = &[
    "StandardScaler",
    "MinMaxScaler",
    "RobustScaler",
    "MaxAbsScaler",
    "Normalizer",
    "QuantileTransformer",
    "PowerTransformer",
    "SimpleImputer",
    "KNNImputer",
    "IterativeImputer",
    "PCA",
    "TruncatedSVD",
    "SelectKBest",
    "SelectPercentile",
    "VarianceThreshold",
    "TfidfVectorizer",
    "CountVectorizer",
    "TargetEncoder",
    "KBinsDiscretizer",
];

pub(super) fn analyze(files: &Files) -> Vec<Finding> {
    let mut found = Vec::new();
    for (path, language, source) in parsed(files).filter(|(_, language, _)| *language == Language::Python) {
        let Some(tree) = language.parse(source) else { continue };
        for scope in scopes(tree.root_node(), source) {
            fit_before_split(path, &scope, &mut found);
            resample_before_split(path, &scope, &mut found);
            test_in_training(path, &scope, &mut found);
            target_in_features(path, &scope, &mut found);
            shuffled_time(path, &scope, &mut found);
        }
    }
    found
}

fn at<'p>(path: &'p str, call: &Call) -> (&'p str, usize, usize) {
    (path, call.line, call.column)
}

fn split(scope: &Scope) -> Option<&Call> {
    scope.calls.iter().find(|call| call.name == "train_test_split")
}

/// Whether a text names a class, itself or through the variable that holds one of it.
fn is_of(scope: &Scope, on: &str, classes: &[&str]) -> bool {
    let names = |text: &str| {
        let class = text.split('(').next().unwrap_or_default();
        text.contains('(') && classes.contains(&class.rsplit('.').next().unwrap_or(class))
    };
    names(on) || scope.assignments.iter().any(|one| one.left == on && names(&one.right))
}

fn fit_before_split(path: &str, scope: &Scope, found: &mut Vec<Finding>) {
    let Some(split) = split(scope) else { return };
    for call in scope.calls.iter().filter(|call| call.end < split.end) {
        let fits = matches!(call.name.as_str(), "fit" | "fit_transform");
        let is_train = call.arguments.first().is_some_and(|argument| argument.to_lowercase().contains("train"));
        if fits && !is_train && is_of(scope, &call.on, TRANSFORMERS) {
            let message = format!("{}.{} learns from all data before they are split", call.on, call.name);
            let fix = "split first, fit on the training part and only transform the test part";
            found.push(Finding::new((TOOL, "fit-before-split", Severity::High), at(path, call), message, fix));
        }
    }
}

fn resample_before_split(path: &str, scope: &Scope, found: &mut Vec<Finding>) {
    let Some(split) = split(scope) else { return };
    for call in scope.calls.iter().filter(|call| call.end < split.end && call.name == "fit_resample") {
        if call.arguments.first().is_some_and(|argument| argument.to_lowercase().contains("train")) {
            continue;
        }
        let message = "rows are made from all data before they are split: copies of test rows get into training";
        found.push(Finding::new(
            (TOOL, "resample-before-split", Severity::High),
            at(path, call),
            message,
            "resample the training part only",
        ));
    }
}

fn is_test(name: &str) -> bool {
    let lower = name.to_lowercase();
    let is_name = lower.chars().all(|c| c.is_alphanumeric() || c == '_');
    is_name && lower.split('_').any(|part| matches!(part, "test" | "xtest" | "ytest" | "holdout"))
}

fn test_in_training(path: &str, scope: &Scope, found: &mut Vec<Finding>) {
    for call in scope.calls.iter().filter(|call| matches!(call.name.as_str(), "fit" | "fit_transform" | "partial_fit"))
    {
        let Some(first) = call.arguments.first() else { continue };
        let is_joined = scope.assignments.iter().any(|one| one.left == *first && joins_test(&one.right));
        if is_test(first) || is_joined || joins_test(first) {
            let message = format!("{} is fitted on {first}, which has test data", call.name);
            let fix = "fit on the training part; the test part is only for predict, transform and score";
            found.push(Finding::new((TOOL, "test-in-training", Severity::Critical), at(path, call), message, fix));
        }
    }
}

/// `pd.concat([X_train, X_test])`, `np.vstack((X_train, X_test))`.
fn joins_test(right: &str) -> bool {
    let Some((function, arguments)) = right.split_once('(') else { return false };
    let joins = matches!(function.rsplit('.').next(), Some("concat" | "concatenate" | "vstack" | "append"));
    joins && arguments.split(['[', ']', '(', ')', ',']).any(is_test)
}

fn target_in_features(path: &str, scope: &Scope, found: &mut Vec<Finding>) {
    let is_name = |text: &str| !text.is_empty() && text.chars().all(|c| c.is_alphanumeric() || c == '_');
    for target in scope.assignments.iter().filter(|one| matches!(one.left.as_str(), "y" | "target" | "labels")) {
        let Some((frame, rest)) = target.right.split_once("[\"") else { continue };
        let Some(column) = rest.strip_suffix("\"]").or_else(|| rest.strip_suffix("\"].values")) else { continue };
        if !is_name(frame) || column.contains('"') {
            continue;
        }
        for features in scope.assignments.iter().filter(|one| matches!(one.left.as_str(), "X" | "features" | "x")) {
            let whole = takes_all(features, frame) && !dropped(scope, frame, column);
            if whole || lists(features, frame, column) {
                let message = format!("{} still has the target {column:?}", features.left);
                let fix = format!("leave it out: {frame}.drop(columns=[\"{column}\"])");
                let place = (path, features.line, 1);
                found.push(Finding::new((TOOL, "target-in-features", Severity::Critical), place, message, fix));
            }
        }
    }
}

fn takes_all(features: &Assignment, frame: &str) -> bool {
    let rest = features.right.strip_prefix(frame);
    rest.is_some_and(|rest| matches!(rest, "" | ".copy()" | ".values" | ".to_numpy()"))
}

fn lists(features: &Assignment, frame: &str, column: &str) -> bool {
    let inner = features.right.strip_prefix(frame).and_then(|rest| rest.strip_prefix("[["));
    inner
        .and_then(|inner| inner.strip_suffix("]]"))
        .is_some_and(|inner| inner.split(',').any(|name| name.trim_matches('"') == column))
}

/// Whether the target was taken out of the frame itself.
fn dropped(scope: &Scope, frame: &str, column: &str) -> bool {
    scope.calls.iter().any(|call| {
        matches!(call.name.as_str(), "drop" | "pop")
            && (matches!(call.on.as_str(), "X" | "x" | "features") || call.on == frame)
            && call.arguments.iter().any(|argument| argument.contains(&format!("\"{column}\"")))
    })
}

fn shuffled_time(path: &str, scope: &Scope, found: &mut Vec<Finding>) {
    let is_time = |text: &str| {
        let lower = text.to_lowercase();
        ["\"date\"", "\"timestamp\"", "\"datetime\"", "\"time\""].iter().any(|name| lower.contains(name))
    };
    let ordered = scope.calls.iter().any(|call| match call.name.as_str() {
        "sort_values" | "set_index" => call.arguments.iter().any(|argument| is_time(argument)),
        "read_csv" => call.arguments.iter().any(|argument| argument.starts_with("parse_dates=") && is_time(argument)),
        "rolling" | "shift" => true,
        _ => false,
    });
    if !ordered {
        return;
    }
    for call in &scope.calls {
        let has = |wanted: &str| call.arguments.iter().any(|argument| argument == wanted);
        let shuffles = match call.name.as_str() {
            "train_test_split" => !has("shuffle=False"),
            "KFold" | "StratifiedKFold" => has("shuffle=True"),
            _ => false,
        };
        if shuffles {
            let message =
                format!("{} shuffles rows that are in the order of time: the future gets into training", call.name);
            let fix = "split by time: shuffle=False, or TimeSeriesSplit";
            found.push(Finding::new((TOOL, "shuffled-time-series", Severity::High), at(path, call), message, fix));
        }
    }
}
