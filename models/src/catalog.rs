//! Names of models: the known ones of `catalog.toml`, and `owner/repo[:FILE or :QUANTIZATION]` for everything else on the hub.

use std::sync::OnceLock;

use serde::Deserialize;

use crate::error::ModelError;
use crate::provider::ModelKind;
use crate::quantization;
use crate::split::Shard;

/// A model that is known by a short name.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CatalogEntry {
    /// The short name.
    pub name: String,
    /// What it is for.
    pub kind: ModelKind,
    /// Its repository on the hub.
    pub repo: String,
    /// Branch, tag or commit of the repository.
    pub revision: String,
    /// Tokens that it reads at once.
    pub context: Option<u64>,
    /// Length of its vectors.
    pub dimensions: Option<usize>,
    /// Put before every query that is embedded.
    #[serde(default)]
    pub query_prefix: String,
    /// Put before every document that is embedded.
    #[serde(default)]
    pub document_prefix: String,
    /// The name of the same model at an Ollama server.
    pub ollama: Option<String>,
    /// What is fetched.
    pub files: Vec<CatalogFile>,
}

/// One file of a model on the hub.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CatalogFile {
    /// Its path in the repository.
    pub from: String,
    /// Its path in the model's folder; the same when unset.
    pub to: Option<String>,
    /// Checked after fetching.
    pub sha256: Option<String>,
    /// May be missing in the repository.
    #[serde(default)]
    pub optional: bool,
}

impl CatalogFile {
    /// The path in the model's folder.
    pub fn target(&self) -> &str {
        self.to.as_deref().unwrap_or(&self.from)
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Catalog {
    model: Vec<CatalogEntry>,
}

/// All known models.
pub fn catalog() -> &'static [CatalogEntry] {
    static CATALOG: OnceLock<Vec<CatalogEntry>> = OnceLock::new();
    CATALOG.get_or_init(|| {
        // The file is part of the program and a test reads it.
        let catalog: Catalog = toml::from_str(include_str!("catalog.toml")).expect("catalog.toml is valid");
        catalog.model
    })
}

/// The known model of this name.
pub fn find(name: &str) -> Option<&'static CatalogEntry> {
    catalog().iter().find(|entry| entry.name.eq_ignore_ascii_case(name))
}

/// A model's name, checked: it can stand in a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ModelName {
    /// A folder name: a catalog entry or something that the operator put into the models folder.
    Short(String),
    /// A repository of the hub, and optionally what of it: a file, one of several that are a model together, their name without the numbers,
    /// or a quantization.
    Hub { repo: String, file: Option<String> },
}

impl ModelName {
    /// Reads a name. Refuses everything that could leave the models folder or the hub's path.
    pub(crate) fn parse(name: &str) -> Result<Self, ModelError> {
        let bad = || {
            ModelError::bad_request(
                "local",
                format!(
                    "{:?} is no model name; use a name of `riverrun models`, or owner/repo[:FILE or :QUANTIZATION] of the hub",
                    clip(name)
                ),
            )
        };
        let (path, file) = match name.split_once(':') {
            Some((path, file)) => (path, Some(file)),
            None => (name, None),
        };
        let segments: Vec<&str> = path.split('/').collect();
        if name.len() > 200 || !segments.iter().all(|segment| is_segment(segment)) {
            return Err(bad());
        }
        match (segments.as_slice(), file) {
            ([short], None) => Ok(ModelName::Short((*short).to_owned())),
            ([_, _], None) => Ok(ModelName::Hub { repo: path.to_owned(), file: None }),
            ([_, _], Some(file)) if file.split('/').all(is_segment) => {
                Ok(ModelName::Hub { repo: path.to_owned(), file: Some(file.to_owned()) })
            }
            _ => Err(bad()),
        }
    }

    /// The folder's name under a models folder. All names of the files of one model lead to the same.
    pub(crate) fn folder(&self) -> String {
        match self {
            ModelName::Short(name) => find(name).map_or_else(|| name.clone(), |entry| entry.name.clone()),
            ModelName::Hub { repo, file: None } => repo.replace('/', "--"),
            ModelName::Hub { repo, file: Some(file) } => {
                format!("{}--{}", repo.replace('/', "--"), whole(file).replace('/', "--"))
            }
        }
    }
}

/// The name that a model is listed by which is asked for by this one; `None` where it is no name of a model.
pub fn listed_name(name: &str) -> Option<String> {
    ModelName::parse(name).ok().map(|name| name.folder())
}

/// The other way round: the name that a model is asked for by which lies in this folder. Those of the hub have a slash, and a colon before
/// a file.
pub(crate) fn asked_as(folder: &str) -> String {
    let mut parts = folder.splitn(3, "--");
    match (parts.next(), parts.next(), parts.next()) {
        (Some(owner), Some(repo), None) => format!("{owner}/{repo}"),
        (Some(owner), Some(repo), Some(file)) => format!("{owner}/{repo}:{}", file.replace("--", "/")),
        _ => folder.to_owned(),
    }
}

/// What is asked for of a repository, as one file would be called: `m.gguf` also for `m-00002-of-00003.gguf` and for `m`; the name of a
/// quantization stays one.
fn whole(file: &str) -> String {
    if let Some(shard) = Shard::parse(file) {
        return shard.whole();
    }
    if is_gguf_name(file) {
        return file.to_owned();
    }
    quantization::named(file).unwrap_or_else(|| format!("{file}.gguf"))
}

/// Whether a file is called as GGUF files are.
pub(crate) fn is_gguf_name(file: &str) -> bool {
    file.to_ascii_lowercase().ends_with(".gguf")
}

fn is_segment(segment: &str) -> bool {
    !segment.is_empty()
        && !segment.starts_with('.')
        && segment.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '@'))
}

/// The beginning of a text that came from outside, for an error message.
pub(crate) fn clip(text: &str) -> String {
    const LIMIT: usize = 120;
    match text.char_indices().nth(LIMIT) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::settings::{DEFAULT_CHAT_MODEL, DEFAULT_EMBED_MODEL, DEFAULT_RERANK_MODEL};

    #[test]
    fn given_the_catalog_when_it_is_read_then_names_are_unique_and_the_defaults_are_in_it() {
        let names: HashSet<_> = catalog().iter().map(|entry| &entry.name).collect();
        assert_eq!(names.len(), catalog().len());
        assert_eq!(find(DEFAULT_CHAT_MODEL).unwrap().kind, ModelKind::Chat);
        assert_eq!(find(DEFAULT_RERANK_MODEL).unwrap().kind, ModelKind::Rerank);
        let embed = find(DEFAULT_EMBED_MODEL).unwrap();
        assert_eq!((embed.kind, embed.dimensions), (ModelKind::Embed, Some(768)));
        for entry in catalog() {
            assert!(ModelName::parse(&entry.name).is_ok() && ModelName::parse(&entry.repo).is_ok(), "{}", entry.name);
            assert!(entry.files.iter().all(|file| !file.target().contains("..")));
        }
    }

    #[test]
    fn given_names_when_they_are_parsed_then_nothing_can_leave_the_models_folder() {
        let hub = |repo: &str, file: Option<&str>| ModelName::Hub { repo: repo.into(), file: file.map(Into::into) };
        assert_eq!(ModelName::parse("All-MPNet-base-v2").unwrap().folder(), "all-mpnet-base-v2");
        assert_eq!(ModelName::parse("my-model").unwrap(), ModelName::Short("my-model".into()));
        assert_eq!(ModelName::parse("Qwen/Q-GGUF").unwrap(), hub("Qwen/Q-GGUF", None));
        let with_file = ModelName::parse("Qwen/Q-GGUF:sub/q4.gguf").unwrap();
        assert_eq!(with_file, hub("Qwen/Q-GGUF", Some("sub/q4.gguf")));
        assert_eq!(with_file.folder(), "Qwen--Q-GGUF--sub--q4.gguf");
        for (name, folder) in [
            ("o/r:sub/m-00002-of-00003.gguf", "o--r--sub--m.gguf"),
            ("o/r:sub/m.gguf", "o--r--sub--m.gguf"),
            ("o/r:sub/m", "o--r--sub--m.gguf"),
            ("o/r:q4_k_m", "o--r--Q4_K_M"),
            ("o/r:Q4_K_M", "o--r--Q4_K_M"),
            ("o--r--sub--m.gguf", "o--r--sub--m.gguf"),
        ] {
            assert_eq!(listed_name(name).as_deref(), Some(folder), "{name}");
            assert_eq!(listed_name(&asked_as(folder)).as_deref(), Some(folder), "{name}");
        }
        for bad in [
            "",
            "..",
            "../etc",
            "/etc/passwd",
            "a/b/c",
            "a/..",
            "a/b:../c",
            "a/b:",
            "a b",
            "a\0",
            "a/b:c?d",
            ".hidden",
            "a:b",
        ] {
            assert!(ModelName::parse(bad).is_err(), "{bad:?}");
        }
    }
}
