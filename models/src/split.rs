//! GGUF models in several files, named as llama.cpp's own tool names them: `NAME-00001-of-00003.gguf`. llama.cpp is given the first and
//! finds the others beside it, by their names.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Files of one model at most; hubs have them of a few tens.
pub(crate) const MAX_SHARDS: u32 = 999;
/// The name of a model that is in one file, in its folder.
const SINGLE: &str = "model.gguf";

/// The name of one file of several, as its parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Shard<'a> {
    /// The path before the numbers.
    stem: &'a str,
    /// From 1.
    number: u32,
    /// At least 2: a model in one file has no need of the others' names.
    pub(crate) count: u32,
}

impl<'a> Shard<'a> {
    /// Reads a path. llama.cpp knows no other form: five digits each, and the ending in lower case.
    pub(crate) fn parse(file: &'a str) -> Option<Self> {
        let (rest, count) = file.strip_suffix(".gguf")?.rsplit_once("-of-")?;
        let (stem, number) = rest.rsplit_once('-')?;
        let (number, count) = (five_digits(number)?, five_digits(count)?);
        let is_one = !stem.is_empty() && !stem.ends_with('/') && count > 1 && (1..=count).contains(&number);
        is_one.then_some(Shard { stem, number, count })
    }

    /// The paths of all files of the model, the first one first.
    pub(crate) fn all(self) -> impl Iterator<Item = String> {
        (1..=self.count).map(move |number| file_of(self.stem, number, self.count))
    }

    /// The path of the model if it were one file.
    pub(crate) fn whole(self) -> String {
        format!("{}.gguf", self.stem)
    }
}

/// The path of one file of the model `whole`, which ends in `.gguf`.
pub(crate) fn first_of(whole: &str, count: u32) -> String {
    file_of(whole.strip_suffix(".gguf").unwrap_or(whole), 1, count)
}

fn file_of(stem: &str, number: u32, count: u32) -> String {
    format!("{stem}-{number:05}-of-{count:05}.gguf")
}

fn five_digits(text: &str) -> Option<u32> {
    let digits = text.len() == 5 && text.bytes().all(|byte| byte.is_ascii_digit());
    digits.then(|| text.parse().ok()).flatten()
}

/// The file of a folder that llama.cpp is given: `model.gguf`, or the first of several that are all there. Where there are several such models,
/// the first by name.
pub(crate) fn gguf_of(folder: &Path) -> Option<PathBuf> {
    let single = folder.join(SINGLE);
    if single.is_file() {
        return Some(single);
    }
    let entries = fs::read_dir(folder).ok()?.flatten().filter_map(|entry| entry.file_name().into_string().ok());
    let is_there = |name: &String| Shard::parse(name).is_some() && folder.join(name).is_file();
    let names: BTreeSet<String> = entries.filter(is_there).collect();
    let is_first = |name: &&String| {
        Shard::parse(name).is_some_and(|shard| shard.number == 1 && shard.all().all(|file| names.contains(&file)))
    };
    names.iter().find(is_first).map(|name| folder.join(name))
}

/// The same, and where there is none the file that there would be.
pub(crate) fn gguf_or_single(folder: &Path) -> PathBuf {
    gguf_of(folder).unwrap_or_else(|| folder.join(SINGLE))
}

/// All files of the weights that begin with this one: itself, and those that it is the first of.
pub(crate) fn with_others(weights: &Path) -> Vec<PathBuf> {
    let name = weights.file_name().and_then(|name| name.to_str());
    match name.and_then(Shard::parse).filter(|shard| shard.number == 1) {
        Some(shard) => shard.all().map(|file| weights.with_file_name(file)).collect(),
        None => vec![weights.to_owned()],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn given_file_names_when_they_are_read_then_only_those_that_llama_cpp_finds_are_of_several() {
        let shard = Shard::parse("sub/m-q4_k_m-00002-of-00003.gguf").unwrap();
        assert_eq!((shard.stem, shard.number, shard.count), ("sub/m-q4_k_m", 2, 3));
        assert_eq!(shard.whole(), "sub/m-q4_k_m.gguf");
        let all: Vec<String> = shard.all().collect();
        assert_eq!(all[0], "sub/m-q4_k_m-00001-of-00003.gguf");
        assert_eq!((all.len(), all[2].as_str()), (3, "sub/m-q4_k_m-00003-of-00003.gguf"));
        assert_eq!(first_of("sub/m-q4_k_m.gguf", 3), all[0]);
        for other in [
            "m.gguf",
            "m-1-of-2.gguf",
            "m-00001-of-00001.gguf",
            "m-00000-of-00002.gguf",
            "m-00003-of-00002.gguf",
            "m-00001-of-00002.GGUF",
            "m-00001-of-00002.safetensors",
            "-00001-of-00002.gguf",
            "sub/-00001-of-00002.gguf",
            "m-+0001-of-00002.gguf",
        ] {
            assert_eq!(Shard::parse(other), None, "{other}");
        }
    }

    #[test]
    fn given_a_folder_of_several_files_when_its_model_is_looked_for_then_it_is_the_first_and_only_where_all_are_there()
    {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        assert_eq!(gguf_of(folder.path()), None);
        fs::write(path("m-00002-of-00002.gguf"), "b").unwrap();
        fs::write(path("a-00001-of-00002.gguf"), "of another, which lacks one").unwrap();
        assert_eq!(gguf_of(folder.path()), None);
        fs::create_dir(path("m-00001-of-00002.gguf")).unwrap();
        assert_eq!(gguf_of(folder.path()), None, "a folder is no file");
        fs::remove_dir(path("m-00001-of-00002.gguf")).unwrap();
        fs::write(path("m-00001-of-00002.gguf"), "a").unwrap();
        let first = gguf_of(folder.path()).unwrap();
        assert_eq!(first, path("m-00001-of-00002.gguf"));
        assert_eq!(with_others(&first), [first.clone(), path("m-00002-of-00002.gguf")]);
        fs::write(path(SINGLE), "whole").unwrap();
        assert_eq!((gguf_of(folder.path()), with_others(&path(SINGLE))), (Some(path(SINGLE)), vec![path(SINGLE)]));
    }
}
