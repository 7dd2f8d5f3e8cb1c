//! llama.cpp: its one-time start, and its files.

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
        .map_err(|_| "llama.cpp refuses the file; it is cut off, damaged, or of an unknown architecture (its log is at level debug)".to_owned())?;
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
    let mut magic = [0; 4];
    let read = std::fs::File::open(path).and_then(|mut file| std::io::Read::read_exact(&mut file, &mut magic));
    match read {
        Ok(()) if &magic == b"GGUF" => Ok(()),
        Ok(()) => Err(format!("it is no GGUF file (it begins with {magic:02x?})")),
        Err(error) => Err(error.to_string()),
    }
}
