//! Which files of a repository make up a model.

use std::collections::BTreeMap;

use crate::catalog::{CatalogFile, clip, is_gguf_name};
use crate::error::ModelError;
use crate::quantization;
use crate::split::{MAX_SHARDS, Shard, first_of};

/// The quantization that is taken where none is named.
const USUAL: &str = "Q4_K_M";
/// Files that a message names at most.
const MAX_NAMED: usize = 20;

/// What is fetched for one model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Plan {
    pub(super) repo: String,
    pub(super) revision: String,
    pub(super) files: Vec<CatalogFile>,
    /// What one progress over all files shows; where there is none, each file has its own.
    pub(super) together: Option<String>,
}

impl Plan {
    /// Where a file of it is at the hub of this address.
    pub(super) fn url(&self, address: &str, file: &CatalogFile) -> String {
        format!("{address}/{}/resolve/{}/{}", self.repo, self.revision, file.from)
    }
}

/// The plan of a GGUF file that is named in full; the name of one of several tells the others'.
pub(super) fn gguf_plan(repo: &str, file: &str) -> Result<Plan, ModelError> {
    let of = |from: String, to: &str| CatalogFile { to: Some(to.to_owned()), from, sha256: None, optional: false };
    let (files, together) = match Shard::parse(file) {
        Some(shard) if shard.count > MAX_SHARDS => {
            return Err(ModelError::ModelMissing {
                model: repo.to_owned(),
                reason: format!("it is in {} files, of which at most {MAX_SHARDS} are fetched", shard.count),
                fix: "choose a model in fewer files".to_owned(),
            });
        }
        // They keep their names, by which llama.cpp finds them.
        Some(shard) => {
            let files = shard.all().map(|from| {
                let to = base_name(&from).to_owned();
                of(from, &to)
            });
            (files.collect::<Vec<_>>(), Some(format!("{} in {} files", base_name(&shard.whole()), shard.count)))
        }
        None => (vec![of(file.to_owned(), "model.gguf")], None),
    };
    Ok(Plan { repo: repo.to_owned(), revision: "main".to_owned(), files, together })
}

/// What to fetch of a repository that has these files: the GGUF model that is `wanted`, by its file, the name of several files without the numbers,
/// or its quantization. Where none is named, the only one or the 4-bit one, or the files of an encoder.
pub(super) fn plan_of_files(repo: &str, wanted: Option<&str>, files: &[String]) -> Result<Plan, ModelError> {
    let choices = choices_of(files);
    let found = match wanted {
        Some(wanted) => matching(&choices, wanted),
        None => usual(&choices),
    };
    match (found.as_slice(), wanted) {
        ([one], _) => one.plan(repo),
        ([], None) if choices.is_empty() => encoder_plan(repo, files),
        ([], None) => {
            Err(to_choose(repo, format!("{repo} has several model files"), &choices.iter().collect::<Vec<_>>()))
        }
        ([], Some(wanted)) => {
            Err(to_choose(repo, format!("{repo} has no model file {wanted:?}"), &choices.iter().collect::<Vec<_>>()))
        }
        (several, _) => Err(to_choose(
            repo,
            format!("{repo} has {} files for {:?}", several.len(), wanted.unwrap_or(USUAL)),
            several,
        )),
    }
}

/// A GGUF model of a repository.
#[derive(Debug)]
struct Choice {
    /// Its file; of several, what it would be called if it were one.
    whole: String,
    /// Files that it is said to be in.
    count: u32,
    /// Files that are there.
    there: u32,
    quantization: Option<String>,
}

impl Choice {
    fn plan(&self, repo: &str) -> Result<Plan, ModelError> {
        if self.there < self.count {
            return Err(ModelError::ModelMissing {
                model: repo.to_owned(),
                reason: format!("{repo} has {} of the {} files of {}", self.there, self.count, clip(&self.whole)),
                fix: "choose another file or repository".to_owned(),
            });
        }
        match self.count {
            1 => gguf_plan(repo, &self.whole),
            count => gguf_plan(repo, &first_of(&self.whole, count)),
        }
    }

    fn is_called(&self, name: &str) -> bool {
        let whole = self.whole.to_ascii_lowercase();
        let wanted = name.to_ascii_lowercase();
        let is = |whole: &str| whole == wanted || whole.strip_suffix(".gguf") == Some(wanted.as_str());
        is(&whole) || is(base_name(&whole))
    }
}

/// The GGUF models of a repository by name. Of one that is there as one file and as several, the one file; what a message or a path can't hold
/// is left out, and what reads pictures for a model beside it.
fn choices_of(files: &[String]) -> Vec<Choice> {
    let mut models: BTreeMap<(String, u32), u32> = BTreeMap::new();
    let is_model = |file: &&String| {
        is_gguf_name(file)
            && !base_name(file).to_ascii_lowercase().starts_with("mmproj")
            && !file.chars().any(char::is_control)
            && file.split('/').all(|segment| !matches!(segment, "" | "." | ".."))
    };
    for file in files.iter().filter(is_model) {
        let key = Shard::parse(file).map_or_else(|| (file.clone(), 1), |shard| (shard.whole(), shard.count));
        *models.entry(key).or_default() += 1;
    }
    let mut choices: Vec<Choice> = models
        .into_iter()
        .map(|((whole, count), there)| Choice { quantization: quantization::of_file(&whole), whole, count, there })
        .collect();
    choices.sort_by(|one, other| (&one.whole, one.there < one.count).cmp(&(&other.whole, other.there < other.count)));
    choices.dedup_by(|later, first| later.whole == first.whole);
    choices
}

/// The choices that a name means: those that are called so, else those of that quantization, else those that mix it.
fn matching<'c>(choices: &'c [Choice], wanted: &str) -> Vec<&'c Choice> {
    let shard = Shard::parse(wanted).map(Shard::whole);
    let wanted = shard.as_deref().unwrap_or(wanted);
    let quantization = quantization::named(wanted);
    let is_exactly = |choice: &&Choice| choice.whole == wanted;
    let is_called = |choice: &&Choice| choice.is_called(wanted);
    let is_of = |choice: &&Choice| quantization.is_some() && choice.quantization == quantization;
    let is_near = |choice: &&Choice| {
        quantization.is_some() && choice.quantization.as_deref().map(quantization::plain) == quantization.as_deref()
    };
    let ways: [&dyn Fn(&&'c Choice) -> bool; 4] = [&is_exactly, &is_called, &is_of, &is_near];
    let mut found = ways.iter().map(|way| choices.iter().filter(way).collect::<Vec<_>>());
    found.find(|found| !found.is_empty()).unwrap_or_default()
}

/// What is taken where none is named, one at most.
fn usual(choices: &[Choice]) -> Vec<&Choice> {
    if let [only] = choices {
        return vec![only];
    }
    let is_usual = |choice: &&Choice| choice.quantization.as_deref().map(quantization::plain) == Some(USUAL);
    choices.iter().filter(is_usual).min_by_key(|choice| choice.count).into_iter().collect()
}

fn to_choose(repo: &str, reason: String, choices: &[&Choice]) -> ModelError {
    let mut names: Vec<String> = choices.iter().take(MAX_NAMED).map(|choice| clip(&choice.whole)).collect();
    if choices.len() > MAX_NAMED {
        names.push(format!("and {} more", choices.len() - MAX_NAMED));
    }
    let of = |name: &str| choices.iter().filter(|choice| choice.quantization.as_deref() == Some(name)).count();
    let mut quantizations = choices.iter().filter_map(|choice| choice.quantization.as_deref());
    let by_quantization = match quantizations.find(|name| of(name) == 1) {
        Some(name) => format!(" or, by its quantization, as {repo}:{name}"),
        None => String::new(),
    };
    let fix = match names.as_slice() {
        [] => "it has no GGUF file; choose another repository".to_owned(),
        names => format!("name one as {repo}:FILE{by_quantization}; there are {}", names.join(", ")),
    };
    ModelError::ModelMissing { model: repo.to_owned(), reason, fix }
}

fn base_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

fn encoder_plan(repo: &str, files: &[String]) -> Result<Plan, ModelError> {
    let has = |name: &str| files.iter().any(|file| file == name);
    if let Some(lacking) = ["config.json", "tokenizer.json", "model.safetensors"].iter().find(|name| !has(name)) {
        return Err(ModelError::ModelMissing {
            model: repo.to_owned(),
            reason: format!("the repository has neither a GGUF file nor {lacking}"),
            fix: "choose a repository with a GGUF file, or with config.json, tokenizer.json and model.safetensors"
                .to_owned(),
        });
    }
    let wanted = [
        ("config.json", false),
        ("tokenizer.json", false),
        ("model.safetensors", false),
        ("sentence_bert_config.json", true),
        ("config_sentence_transformers.json", true),
        ("modules.json", true),
        ("1_Pooling/config.json", true),
    ];
    let files = wanted
        .iter()
        .filter(|(name, _)| has(name))
        .map(|(name, optional)| CatalogFile { from: (*name).to_owned(), to: None, sha256: None, optional: *optional })
        .collect();
    Ok(Plan { repo: repo.to_owned(), revision: "main".to_owned(), files, together: None })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(wanted: Option<&str>, files: &[&str]) -> Result<Plan, ModelError> {
        plan_of_files("o/r", wanted, &files.iter().map(|file| (*file).to_owned()).collect::<Vec<_>>())
    }

    fn names(plan: Plan) -> Vec<String> {
        plan.files.into_iter().map(|file| file.from).collect()
    }

    /// What the hint says of a plan that can't be made.
    fn hint(wanted: Option<&str>, files: &[&str]) -> String {
        plan(wanted, files).unwrap_err().hint().unwrap()
    }

    #[test]
    fn given_a_repository_when_it_is_planned_then_the_right_files_are_chosen() {
        let chosen = |files: &[&str]| names(plan(None, files).unwrap());
        assert_eq!(chosen(&["m-Q8_0.gguf", "m-Q4_K_M.gguf", "README.md"]), ["m-Q4_K_M.gguf"]);
        assert_eq!(chosen(&["only.gguf"]), ["only.gguf"]);
        assert_eq!(chosen(&["only.GGUF", "mmproj-F16.gguf"]), ["only.GGUF"], "what reads pictures is no model");
        let split = ["s-q4_k_m-00001-of-00002.gguf", "s-q4_k_m-00002-of-00002.gguf"];
        assert_eq!(chosen(&["m-Q8_0.gguf", split[1], split[0]]), split);
        assert_eq!(chosen(&[split[0], split[1], "z-q4_k_m.gguf"]), ["z-q4_k_m.gguf"], "one file before several");
        assert!(hint(None, &["a.gguf", "b.gguf"]).ends_with("o/r:FILE; there are a.gguf, b.gguf"));
        let encoder = ["config.json", "tokenizer.json", "model.safetensors", "modules.json", "pytorch_model.bin"];
        assert_eq!(chosen(&encoder), encoder[..4]);
        assert_eq!(plan(None, &["config.json"]).unwrap_err().code(), "model_missing");
    }

    #[test]
    fn given_a_model_in_several_files_when_it_is_planned_then_any_name_of_it_means_all_and_they_keep_their_names() {
        let files =
            ["sub/m-q8_0-00001-of-00003.gguf", "sub/m-q8_0-00002-of-00003.gguf", "sub/m-q8_0-00003-of-00003.gguf"];
        let listed = [files[2], files[0], "m-q2_k.gguf", files[1]];
        for name in
            ["sub/m-q8_0-00002-of-00003.gguf", "sub/m-q8_0.gguf", "sub/m-q8_0", "m-q8_0", "M-Q8_0.gguf", "q8_0", "Q8_0"]
        {
            let plan = plan(Some(name), &listed).unwrap();
            assert_eq!(plan.together.as_deref(), Some("m-q8_0.gguf in 3 files"), "{name}");
            assert_eq!(plan.files[1].target(), "m-q8_0-00002-of-00003.gguf");
            assert_eq!(names(plan), files, "{name}");
        }
        assert_eq!(gguf_plan("o/r", files[1]).unwrap(), plan(Some("q8_0"), &listed).unwrap());
        let lacking = plan(Some("q8_0"), &files[..2]).unwrap_err().to_string();
        assert!(lacking.contains("2 of the 3 files of sub/m-q8_0.gguf"), "{lacking}");
        let many = gguf_plan("o/r", "m-00001-of-99999.gguf").unwrap_err().to_string();
        assert!(many.contains("99999") && many.contains("999"), "{many}");
    }

    #[test]
    fn given_a_quantization_when_it_is_planned_then_the_one_file_of_it_is_chosen_and_else_what_is_there_is_listed() {
        let files =
            ["m-Q4_K_M.gguf", "m-UD-Q4_K_M.gguf", "m-UD-Q2_K_XL.gguf", "m.Q8_0.gguf", "other.Q8_0.gguf", "notes.txt"];
        let chosen = |wanted: &str| names(plan(Some(wanted), &files).unwrap());
        assert_eq!(chosen("q4_k_m"), ["m-Q4_K_M.gguf"]);
        assert_eq!(chosen("ud-q4_k_m"), ["m-UD-Q4_K_M.gguf"]);
        assert_eq!(chosen("Q2_K_XL"), ["m-UD-Q2_K_XL.gguf"], "the only one that mixes it");
        assert_eq!(chosen("M.q8_0"), ["m.Q8_0.gguf"]);
        let several = hint(Some("q8_0"), &files);
        assert!(several.ends_with("as o/r:FILE; there are m.Q8_0.gguf, other.Q8_0.gguf"), "{several}");
        for unknown in ["Q5_K_M", "latest", "nothing.gguf"] {
            let listed = hint(Some(unknown), &files);
            assert!(listed.contains("m-Q4_K_M.gguf") && listed.contains("as o/r:Q4_K_M"), "{listed}");
            assert!(!listed.contains("notes.txt"), "{listed}");
        }
        assert!(hint(Some("Q8_0"), &["config.json"]).contains("no GGUF file"));
    }

    #[test]
    fn given_a_repository_of_very_many_files_when_one_is_to_be_chosen_then_the_message_stays_short_and_holds_no_odd_names()
     {
        let mut files: Vec<String> = (0..1000).map(|number| format!("{number:03}{}.gguf", "x".repeat(500))).collect();
        files.extend(["../up.gguf", "a\u{1b}[2J.gguf", "/b.gguf"].map(str::to_owned));
        let error = plan_of_files("o/r", None, &files).unwrap_err();
        let hint = error.hint().unwrap();
        assert!(hint.len() < 3_000 && hint.ends_with("and 980 more"), "{hint}");
        assert!(!hint.contains("up.gguf") && !hint.contains('\u{1b}') && !hint.contains("/b.gguf"), "{hint}");
    }
}
