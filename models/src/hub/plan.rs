//! Which files of a repository make up a model.

use crate::catalog::{CatalogFile, clip};
use crate::error::ModelError;

/// What is fetched for one model.
#[derive(Debug, Clone)]
pub(super) struct Plan {
    pub(super) repo: String,
    pub(super) revision: String,
    pub(super) files: Vec<CatalogFile>,
}

pub(super) fn gguf_plan(repo: &str, file: &str) -> Plan {
    let to = if file.ends_with(".gguf") { Some("model.gguf".to_owned()) } else { None };
    Plan {
        repo: repo.to_owned(),
        revision: "main".to_owned(),
        files: vec![CatalogFile { from: file.to_owned(), to, sha256: None, optional: false }],
    }
}

/// What to fetch of a repository: one GGUF file (the 4-bit one where there are several), or the files of an encoder.
pub(super) fn plan_of_files(repo: &str, files: Vec<String>) -> Result<Plan, ModelError> {
    let ggufs: Vec<&String> = files.iter().filter(|file| file.to_ascii_lowercase().ends_with(".gguf")).collect();
    let preferred = ggufs.iter().find(|file| file.to_ascii_lowercase().contains("q4_k_m") && !file.contains("-of-"));
    match (preferred, ggufs.as_slice()) {
        (Some(file), _) => return Ok(gguf_plan(repo, file)),
        (None, [file]) => return Ok(gguf_plan(repo, file)),
        (None, []) => {}
        (None, several) => {
            let names: Vec<&str> = several.iter().map(|name| name.as_str()).collect();
            return Err(ModelError::bad_request(
                "hub",
                format!(
                    "{repo} has several model files; name one as {repo}:FILE with FILE of {}",
                    clip(&names.join(", "))
                ),
            ));
        }
    }
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
    Ok(Plan { repo: repo.to_owned(), revision: "main".to_owned(), files })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn given_a_repository_when_it_is_planned_then_the_right_files_are_chosen() {
        let plan = |files: &[&str]| plan_of_files("o/r", files.iter().map(|f| (*f).to_owned()).collect());
        let names = |plan: Plan| plan.files.iter().map(|f| f.from.clone()).collect::<Vec<_>>();
        assert_eq!(names(plan(&["m-Q8_0.gguf", "m-Q4_K_M.gguf", "README.md"]).unwrap()), ["m-Q4_K_M.gguf"]);
        assert_eq!(names(plan(&["only.gguf"]).unwrap()), ["only.gguf"]);
        assert!(plan(&["a.gguf", "b.gguf"]).unwrap_err().to_string().contains("a.gguf, b.gguf"));
        let encoder = ["config.json", "tokenizer.json", "model.safetensors", "modules.json", "pytorch_model.bin"];
        assert_eq!(names(plan(&encoder).unwrap()), encoder[..4]);
        assert_eq!(plan(&["config.json"]).unwrap_err().code(), "model_missing");
    }
}
