//! llama.cpp: its one-time start, and its files.

use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::sync::OnceLock;

use llama_cpp_2::llama_backend::LlamaBackend;
use llama_cpp_2::model::LlamaModel;
use llama_cpp_2::model::params::LlamaModelParams;
use llama_cpp_2::{LogOptions, send_logs_to_tracing};

use super::sound;

/// Loads a file, mapped into memory. The error says what is wrong with it.
pub(super) fn load_model(path: &Path) -> Result<LlamaModel, String> {
    let backend = backend()?;
    check_magic(path)?;
    sound::check(path)?;
    let params = LlamaModelParams::default().with_use_mmap(true);
    let model = LlamaModel::load_from_file(backend, path, &params)
        .map_err(|_| "llama.cpp refuses the file, which is whole; it is damaged, or of an unknown architecture (`-vv` shows llama.cpp's log)".to_owned())?;
    check_marks(&model)?;
    Ok(model)
}

/// Says which mark a vocabulary lacks that llama.cpp asserts when it reads the first text.
fn check_marks(model: &LlamaModel) -> Result<(), String> {
    // BERT's has both marks, whatever the file says. (`vocab_type` of the bindings panics for it.)
    let always = model.meta_val_str("tokenizer.ggml.model").is_ok_and(|kind| kind == "bert");
    let vocab = model.vocab();
    let marks = [
        ("begins", always || vocab.should_add_bos(), vocab.bos()),
        ("ends", vocab.should_add_eos(), vocab.eos()),
        ("parts", always, vocab.sep()),
    ];
    match marks.iter().find(|(_, needed, mark)| *needed && mark.0 < 0) {
        Some((what, _, _)) => Err(format!("its vocabulary has no token that {what} a text")),
        None => Ok(()),
    }
}

/// llama.cpp may be initialized once a process.
pub(super) fn backend() -> Result<&'static LlamaBackend, String> {
    static BACKEND: OnceLock<Result<LlamaBackend, String>> = OnceLock::new();
    let backend = BACKEND.get_or_init(|| {
        // It logs a hundred lines a model at its own "info"; they are of use only to who debugs this crate.
        send_logs_to_tracing(LogOptions::default().with_logs_enabled(tracing::enabled!(tracing::Level::DEBUG)));
        LlamaBackend::init().map_err(|error| error.to_string())
    });
    backend.as_ref().map_err(Clone::clone)
}

/// Says in plain words what is wrong with a file that is no GGUF at all.
fn check_magic(path: &Path) -> Result<(), String> {
    let mut begin = Vec::new();
    let read = File::open(path).and_then(|file| file.take(4).read_to_end(&mut begin));
    match read {
        Ok(_) if begin == b"GGUF" => Ok(()),
        Ok(0) => Err("it is empty".to_owned()),
        Ok(_) => Err(format!("it is no GGUF file (it begins with {begin:02x?})")),
        Err(error) => Err(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn given_files_that_are_no_gguf_when_they_are_loaded_then_it_is_said_what_they_are() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("model.gguf");
        for (bytes, told) in [
            (&b""[..], "it is empty"),
            (&b"GG"[..], "it is no GGUF file (it begins with [47, 47])"),
            (&b"<html>"[..], "it is no GGUF file (it begins with [3c, 68, 74, 6d])"),
        ] {
            std::fs::write(&path, bytes).unwrap();
            assert_eq!(check_magic(&path), Err(told.to_owned()));
        }
    }
}
