//! Source code: the text as it is written, and which language it is.

use super::{ExtractedText, Source, SourceError, decode};
use crate::chunking::{self, Chunker};

/// Extensions and their languages.
const LANGUAGES: &[(&str, &[&str])] = &[
    ("rust", &["rs"]),
    ("python", &["py", "pyi"]),
    ("javascript", &["js", "mjs", "cjs", "jsx"]),
    ("typescript", &["ts", "mts", "cts"]),
    ("tsx", &["tsx"]),
    ("go", &["go"]),
    ("java", &["java"]),
    ("kotlin", &["kt", "kts"]),
    ("scala", &["scala"]),
    ("c", &["c", "h"]),
    ("cpp", &["cc", "cpp", "cxx", "hh", "hpp", "hxx"]),
    ("csharp", &["cs"]),
    ("swift", &["swift"]),
    ("ruby", &["rb"]),
    ("php", &["php"]),
    ("perl", &["pl", "pm"]),
    ("lua", &["lua"]),
    ("r", &["r"]),
    ("julia", &["jl"]),
    ("haskell", &["hs"]),
    ("ocaml", &["ml", "mli"]),
    ("elixir", &["ex", "exs"]),
    ("erlang", &["erl"]),
    ("clojure", &["clj"]),
    ("dart", &["dart"]),
    ("zig", &["zig"]),
    ("shell", &["sh", "bash", "zsh", "fish"]),
    ("powershell", &["ps1"]),
    ("sql", &["sql"]),
    ("css", &["css", "scss", "less"]),
    ("xml", &["xml", "xsd", "xslt"]),
    ("yaml", &["yaml", "yml"]),
    ("toml", &["toml"]),
    ("ini", &["ini", "cfg", "conf", "properties"]),
    ("protobuf", &["proto"]),
    ("graphql", &["graphql"]),
    ("terraform", &["tf"]),
    ("latex", &["tex"]),
    ("vue", &["vue"]),
    ("svelte", &["svelte"]),
];

static EXTENSIONS: std::sync::LazyLock<Vec<&'static str>> =
    std::sync::LazyLock::new(|| LANGUAGES.iter().flat_map(|(_, extensions)| extensions.iter().copied()).collect());

/// Programs and configuration.
pub(super) struct Code;

impl Source for Code {
    fn name(&self) -> &'static str {
        "code"
    }

    fn extensions(&self) -> &'static [&'static str] {
        &EXTENSIONS
    }

    fn media_type(&self) -> &'static str {
        "text/x-source"
    }

    fn chunker(&self) -> &'static dyn Chunker {
        &chunking::Recursive
    }

    fn extract(&self, name: &str, bytes: &[u8]) -> Result<ExtractedText, SourceError> {
        let language = language(name).map(str::to_owned);
        let text = ExtractedText { language, ..ExtractedText::plain(decode::decode(name, bytes)?) };
        Ok(text.decoded_from(decode::encoding_of(bytes)))
    }
}

/// The language that a file name's extension stands for.
fn language(name: &str) -> Option<&'static str> {
    let extension = std::path::Path::new(name).extension()?.to_str()?.to_lowercase();
    LANGUAGES.iter().find(|(_, extensions)| extensions.contains(&extension.as_str())).map(|(language, _)| *language)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn given_a_program_when_read_then_it_is_as_written_and_its_language_is_known() {
        let code = "fn main() {\r\n\tprintln!(\"é\");\r\n}\r\n";
        let text = Code.extract("/src/main.RS", code.as_bytes()).unwrap();
        assert_eq!((text.text.as_str(), text.language.as_deref()), (code, Some("rust")));
        assert_eq!(Code.extract("Makefile", b"all:").unwrap().language, None);
        assert_eq!(Code.extract("a.py", b"\0").unwrap_err().code(), "binary_content");
    }

    #[test]
    fn given_the_list_of_languages_then_no_extension_is_there_twice() {
        let mut extensions = EXTENSIONS.clone();
        extensions.sort_unstable();
        extensions.dedup();
        assert_eq!(extensions.len(), EXTENSIONS.len());
    }
}
