//! Names of quantizations, by which a file of a repository can be asked for: `Q4_K_M`, `IQ2_XXS`, `BF16`.

/// The name of a quantization in upper case, where the text is one.
pub(crate) fn named(text: &str) -> Option<String> {
    let name = text.to_ascii_uppercase();
    is_name(plain(&name)).then_some(name)
}

/// The name without the mark of those that choose the bits of each layer.
pub(crate) fn plain(name: &str) -> &str {
    name.strip_prefix("UD-").unwrap_or(name)
}

/// The quantization in a file's path, in upper case: the last word that is one, of the file's name or else of its folder's.
pub(crate) fn of_file(path: &str) -> Option<String> {
    path.to_ascii_uppercase().rsplit('/').find_map(|part| {
        let words: Vec<&str> = part.split(['-', '.']).collect();
        words.iter().enumerate().rev().find_map(|(at, word)| {
            let name = ending(word)?;
            let marked = at > 0 && words[at - 1] == "UD" && name == *word;
            Some(if marked { format!("UD-{name}") } else { name.to_owned() })
        })
    })
}

/// The end of a word that is the name of one; before it stands nothing or `_`.
fn ending(word: &str) -> Option<&str> {
    let starts = std::iter::once(0).chain(word.match_indices('_').map(|(at, _)| at + 1));
    starts.map(|at| &word[at..]).find(|end| is_name(end))
}

/// In upper case, as llama.cpp writes them, and as repositories do.
fn is_name(name: &str) -> bool {
    if matches!(name, "F16" | "FP16" | "BF16" | "F32" | "FP32" | "MXFP4" | "NVFP4") || name.starts_with("MXFP4_") {
        return true;
    }
    let bits = name.strip_prefix(['I', 'T']).unwrap_or(name).strip_prefix('Q').unwrap_or_default();
    let mut parts = bits.split('_');
    let number = parts.next().is_some_and(|part| matches!(part.as_bytes(), [b'1'..=b'9']));
    number && parts.all(|part| matches!(part.len(), 1..=3) && part.bytes().all(|byte| byte.is_ascii_alphanumeric()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn given_names_when_they_are_read_then_those_of_quantizations_are_known_in_either_case() {
        for name in [
            "q4_k_m",
            "Q8_0",
            "IQ2_XXS",
            "iq4_nl",
            "TQ1_0",
            "Q4_0_4_4",
            "bf16",
            "F16",
            "UD-q4_k_xl",
            "MXFP4_MOE",
            "Q6_K",
            "Q4",
        ] {
            assert_eq!(named(name), Some(name.to_ascii_uppercase()));
        }
        for other in
            ["", "latest", "Q", "q44", "Q0_0", "qwen2", "m-q4_k_m", "model", "Q4_", "Q4_K_MEDIUM", "sub/Q4_0", "größe"]
        {
            assert_eq!(named(other), None, "{other}");
        }
    }

    #[test]
    fn given_files_of_repositories_when_their_quantization_is_looked_for_then_it_is_found_where_makers_put_it() {
        for (file, name) in [
            ("qwen2.5-0.5b-instruct-q4_k_m.gguf", Some("Q4_K_M")),
            ("llama-2-7b.Q5_0.gguf", Some("Q5_0")),
            ("codellama_7b_q8_0.gguf", Some("Q8_0")),
            ("m-UD-Q4_K_XL-00001-of-00003.gguf", Some("UD-Q4_K_XL")),
            ("BF16/m-00001-of-00002.gguf", Some("BF16")),
            ("Q4_0/m-Q8_0.gguf", Some("Q8_0")),
            ("m-IQ3_XXS-imat.gguf", Some("IQ3_XXS")),
            ("model.gguf", None),
        ] {
            assert_eq!(of_file(file).as_deref(), name, "{file}");
        }
    }
}
