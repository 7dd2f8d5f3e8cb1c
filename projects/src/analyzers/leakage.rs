//! Leaks of machine learning: what a model learns from data that it is tested on (Kaufman et al., "Leakage in data mining", 2012).
//! Python, one scope at a time; what goes through other functions is not followed.

use std::collections::HashSet;

use super::snapshot::Snapshot;
use crate::finding::{Finding, Severity};
use crate::language::Language;
use crate::python::{Assignment, Call, Module, SPLITS, Scope};

pub(super) const TOOL: &str = "leakage";

/// Classes whose `fit` learns from other rows than the one that is transformed (`Normalizer` does not).
const TRANSFORMERS: &[&str] = &[
    "StandardScaler",
    "MinMaxScaler",
    "RobustScaler",
    "MaxAbsScaler",
    "QuantileTransformer",
    "PowerTransformer",
    "SimpleImputer",
    "KNNImputer",
    "IterativeImputer",
    "PCA",
    "IncrementalPCA",
    "KernelPCA",
    "FastICA",
    "NMF",
    "TruncatedSVD",
    "SelectKBest",
    "SelectPercentile",
    "SelectFromModel",
    "RFE",
    "RFECV",
    "VarianceThreshold",
    "TfidfVectorizer",
    "CountVectorizer",
    "TargetEncoder",
    "KBinsDiscretizer",
];
/// Targets of a scope that features are compared with; people write one or two.
const MAX_TARGETS: usize = 16;

pub(super) fn analyze(snapshot: &Snapshot<'_>) -> Vec<Finding> {
    let mut found = Vec::new();
    for file in snapshot.in_language(|language| language == Language::Python) {
        let Some(module) = file.module() else { continue };
        for scope in &module.scopes {
            let at = At { path: file.path, module: &module };
            let variables = Variables::of(scope);
            fit_before_split(at, scope, &variables, &mut found);
            resample_before_split(at, scope, &mut found);
            test_in_training(at, scope, &variables, &mut found);
            target_in_features(at, scope, &mut found);
            shuffled_time(at, scope, &mut found);
        }
    }
    found
}

/// Where something stands.
#[derive(Clone, Copy)]
struct At<'p> {
    path: &'p str,
    module: &'p Module<'p>,
}

impl<'p> At<'p> {
    fn call(self, call: &Call) -> (&'p str, usize, usize) {
        let (line, column) = self.module.place(call.start);
        (self.path, line, column)
    }
}

fn split(scope: &Scope) -> Option<&Call> {
    scope.calls.iter().find(|call| SPLITS.contains(&call.name.as_str()))
}

/// What variables of a scope hold, as far as rules ask: once for all calls.
struct Variables<'s> {
    transformers: HashSet<&'s str>,
    /// Tables with test data in them.
    joined: HashSet<&'s str>,
}

impl<'s> Variables<'s> {
    fn of(scope: &'s Scope) -> Self {
        let that = |holds: fn(&str) -> bool| {
            let assigned = scope.assignments.iter().filter(move |one| holds(&one.right));
            assigned.map(|one| one.left.as_str()).collect()
        };
        Self { transformers: that(makes_transformer), joined: that(joins_test) }
    }
}

/// Whether a text names a class of transformers and calls it.
fn makes_transformer(text: &str) -> bool {
    let class = text.split('(').next().unwrap_or_default();
    text.contains('(') && TRANSFORMERS.contains(&class.rsplit('.').next().unwrap_or(class))
}

fn fit_before_split(at: At<'_>, scope: &Scope, variables: &Variables<'_>, found: &mut Vec<Finding>) {
    let Some(split) = split(scope) else { return };
    for call in scope.calls.iter().filter(|call| call.end < split.end) {
        let fits = matches!(call.name.as_str(), "fit" | "fit_transform");
        let is_train = call.arguments.first().is_some_and(|argument| argument.to_lowercase().contains("train"));
        let is_transformer = makes_transformer(&call.on) || variables.transformers.contains(call.on.as_str());
        if fits && !is_train && is_transformer {
            let message = format!("{}.{} learns from all data before they are split", call.on, call.name);
            let fix = "split first, fit on the training part and only transform the test part";
            found.push(Finding::new((TOOL, "fit-before-split", Severity::High), at.call(call), message, fix));
        }
    }
}

fn resample_before_split(at: At<'_>, scope: &Scope, found: &mut Vec<Finding>) {
    let Some(split) = split(scope) else { return };
    for call in scope.calls.iter().filter(|call| call.end < split.end && call.name == "fit_resample") {
        if call.arguments.first().is_some_and(|argument| argument.to_lowercase().contains("train")) {
            continue;
        }
        let message = "rows are made from all data before they are split: copies of test rows get into training";
        found.push(Finding::new(
            (TOOL, "resample-before-split", Severity::High),
            at.call(call),
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

/// Whether a file tests the project: what it fits there is no model that anybody uses. `fit_test.py` may be either.
fn is_test_file(path: &str) -> bool {
    let (folders, name) = path.rsplit_once('/').unwrap_or(("", path));
    name.starts_with("test_")
        || name == "conftest.py"
        || folders.split('/').any(|part| matches!(part, "test" | "tests"))
}

fn test_in_training(at: At<'_>, scope: &Scope, variables: &Variables<'_>, found: &mut Vec<Finding>) {
    if is_test_file(at.path) {
        return;
    }
    for call in scope.calls.iter().filter(|call| matches!(call.name.as_str(), "fit" | "fit_transform" | "partial_fit"))
    {
        let Some(first) = call.arguments.first() else { continue };
        if is_test(first) || variables.joined.contains(first.as_str()) || joins_test(first) {
            let message = format!("{} is fitted on {first}, which has test data", call.name);
            let fix = "fit on the training part; the test part is only for predict, transform and score";
            found.push(Finding::new((TOOL, "test-in-training", Severity::Critical), at.call(call), message, fix));
        }
    }
}

/// `pd.concat([X_train, X_test])`, `np.vstack((X_train, X_test))`.
fn joins_test(right: &str) -> bool {
    let Some((function, arguments)) = right.split_once('(') else { return false };
    let joins = matches!(function.rsplit('.').next(), Some("concat" | "concatenate" | "vstack" | "append"));
    joins && arguments.split(['[', ']', '(', ')', ',']).any(is_test)
}

/// A column of a table that is to be foretold.
struct Target<'s> {
    frame: &'s str,
    column: &'s str,
    /// Whether it was taken out of the table.
    is_dropped: bool,
}

/// The targets of a scope, in their order, each once.
fn targets(scope: &Scope) -> Vec<Target<'_>> {
    let is_name = |text: &str| !text.is_empty() && text.chars().all(|c| c.is_alphanumeric() || c == '_');
    let mut found: Vec<Target<'_>> = Vec::new();
    for target in scope.assignments.iter().filter(|one| matches!(one.left.as_str(), "y" | "target" | "labels")) {
        let Some((frame, rest)) = target.right.split_once("[\"") else { continue };
        let Some(column) = rest.strip_suffix("\"]").or_else(|| rest.strip_suffix("\"].values")) else { continue };
        let is_known = || found.iter().any(|known| (known.frame, known.column) == (frame, column));
        if !is_name(frame) || column.contains('"') || is_known() {
            continue;
        }
        found.push(Target { frame, column, is_dropped: dropped(scope, frame, column) });
        if found.len() == MAX_TARGETS {
            break;
        }
    }
    found
}

/// One finding for features that have several targets: their number is that of the lines, and not its square.
fn target_in_features(at: At<'_>, scope: &Scope, found: &mut Vec<Finding>) {
    let targets = targets(scope);
    for features in scope.assignments.iter().filter(|one| matches!(one.left.as_str(), "X" | "features" | "x")) {
        let has = |target: &&Target<'_>| {
            let takes = || takes_all(features, target.frame) || drops_others(features, target.frame, target.column);
            !target.is_dropped && takes() || lists(features, target.frame, target.column)
        };
        let Some(Target { frame, column, .. }) = targets.iter().find(has) else { continue };
        let message = format!("{} still has the target {column:?}", features.left);
        let fix = format!("leave it out: {frame}.drop(columns=[\"{column}\"])");
        let place = (at.path, at.module.line(features.start), 1);
        found.push(Finding::new((TOOL, "target-in-features", Severity::Critical), place, message, fix));
    }
}

fn takes_all(features: &Assignment, frame: &str) -> bool {
    let rest = features.right.strip_prefix(frame);
    rest.is_some_and(|rest| matches!(rest, "" | ".copy()" | ".values" | ".to_numpy()"))
}

/// `df.drop(columns=["id"])`: everything but columns that are written down, of which the target is none.
fn drops_others(features: &Assignment, frame: &str, column: &str) -> bool {
    let call = features.right.strip_prefix(frame).and_then(|rest| rest.strip_prefix(".drop("));
    let Some(arguments) = call.and_then(|rest| rest.strip_suffix(')')) else { return false };
    let (mut names, mut others) = (Vec::new(), String::new());
    for (index, part) in arguments.split('"').enumerate() {
        if index % 2 == 1 { names.push(part) } else { others.push_str(part) }
    }
    // A name that is computed may be the target's.
    let is_literal = others
        .split(['[', ']', '(', ')', ','])
        .all(|part| matches!(part, "" | "axis=1" | "axis=" | "columns=" | "labels=" | "errors=" | "inplace=False"));
    is_literal && !names.is_empty() && !names.contains(&column)
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

fn shuffled_time(at: At<'_>, scope: &Scope, found: &mut Vec<Finding>) {
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
            found.push(Finding::new((TOOL, "shuffled-time-series", Severity::High), at.call(call), message, fix));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::copy::Files;

    fn rules(code: &str) -> Vec<String> {
        let files = Files::from([("a.py".to_owned(), code.to_owned().into())]);
        analyze(&Snapshot::new(&files)).into_iter().map(|one| one.rule).collect()
    }

    #[test]
    fn given_features_without_some_columns_when_they_are_looked_at_then_only_a_target_that_is_surely_left_is_told() {
        for (features, is_leak) in [
            ("df.drop('id', axis=1)", true),
            ("df.drop(columns=['id', 'name'])", true),
            ("df.drop(labels=['id'], axis='columns')", true),
            ("df.drop(columns=['id', 'price'])", false),
            ("df.drop('price', axis=1)", false),
            ("df.drop(columns=left_out)", false),
            ("df.drop(columns=['id', TARGET])", false),
            ("df.drop('id', axis=1).drop('price', axis=1)", false),
            ("other.drop('id', axis=1)", false),
        ] {
            let found = rules(&format!("X = {features}\ny = df['price']\n"));
            assert_eq!(found == ["target-in-features"], is_leak, "{features}: {found:?}");
        }
        assert!(
            rules("df.drop('price', axis=1, inplace=True)\nX = df.drop('id', axis=1)\ny = df['price']\n").is_empty()
        );
    }

    #[test]
    fn given_targets_and_features_over_and_over_when_they_are_looked_at_then_each_of_the_features_is_told_once() {
        let code = "y = df['a']\nX = df\nlabels = df['b']\nx = df[['b', 'c']]\n".repeat(2_000);
        assert_eq!(rules(&code).len(), 4_000);
        let columns: String = (0..2_000).map(|number| format!("y = df['c{number}']\nX = df\n")).collect();
        assert_eq!(rules(&columns).len(), 2_000);
    }

    #[test]
    fn given_a_variable_that_gets_several_values_when_it_is_fitted_then_one_that_a_rule_is_about_is_enough() {
        let scaler = "s = None\ns = StandardScaler()\ns = s or t\nX = s.fit_transform(X)\ntrain_test_split(X)\n";
        assert_eq!(rules(scaler), ["fit-before-split"]);
        let joined = "a = b\na = pd.concat([X_train, X_test])\nmodel.fit(a)\nmodel.fit(b)\n";
        assert_eq!(rules(joined), ["test-in-training"]);
    }

    #[test]
    fn given_tests_of_a_project_when_a_model_is_fitted_on_test_data_in_them_then_that_is_no_leak() {
        for (path, is_leak) in [
            ("tests/test_m.py", false),
            ("pkg/tests/common.py", false),
            ("test_m.py", false),
            ("conftest.py", false),
            ("train.py", true),
            ("latest/train.py", true),
            ("fit_test.py", true),
        ] {
            let files = Files::from([(path.to_owned(), "Model().fit(test_data)\n".into())]);
            assert_eq!(!analyze(&Snapshot::new(&files)).is_empty(), is_leak, "{path}");
        }
    }

    #[test]
    fn given_files_without_a_name_of_any_rule_when_they_are_looked_at_then_only_of_these_nothing_more_is_read() {
        for (code, is_read) in [
            ("import os\nprint(os.name, 'fit')\n# fit, y = 1\n", false),
            ("y = df['a']\n", true),
            ("y: Series = df['a']\n", true),
            ("model.fit(X_test)\n", true),
            ("KFold(shuffle=True)\n", true),
        ] {
            assert_eq!(!Module::parse(code.as_bytes()).unwrap().scopes.is_empty(), is_read, "{code}");
        }
    }

    #[test]
    fn given_a_cross_validation_when_all_data_are_learned_from_before_it_then_that_is_told_and_a_pipeline_is_not() {
        for split in SPLITS {
            let scaled = format!("X = StandardScaler().fit_transform(X)\nscores = {split}(model, X, y)\n");
            assert_eq!(rules(&scaled), ["fit-before-split"], "{split}");
            let train =
                format!("X_train = StandardScaler().fit_transform(X_train)\nscores = {split}(model, X_train, y)\n");
            let piped = format!("model = make_pipeline(StandardScaler(), Ridge())\nscores = {split}(model, X, y)\n");
            assert!(rules(&train).is_empty() && rules(&piped).is_empty(), "{split}");
            let rows = format!("X = Normalizer().fit_transform(X)\nscores = {split}(model, X, y)\n");
            assert!(rules(&rows).is_empty(), "{split}: each row is scaled by itself");
            // What is left is a training part, whatever it is called.
            let part =
                format!("a, b = train_test_split(X)\na = PCA(2).fit_transform(a)\nscores = {split}(model, a, y)\n");
            assert!(rules(&part).is_empty(), "{split}");
        }
    }
}
