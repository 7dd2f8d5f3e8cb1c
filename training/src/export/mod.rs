//! What comes out of a training: the adapter in PEFT's layout, and the base model with the adapter merged into it as a GGUF
//! file, which llama.cpp and so the local runtime load as any other model.

mod merged;
mod parity;
mod peft;
mod shelf;
mod whole;

pub use merged::{Written, write_merged};
pub(crate) use parity::SEQUENCES;
pub use parity::{MAX_DIFFERENCE, Parity, Said};
pub use peft::{ADAPTER_CONFIG, ADAPTER_WEIGHTS, PeftFiles, initial_files, peft_files};
pub use shelf::{Turn, check_name, discard_staging, merged_folder, point, publish, settle, staging_folder, take_turn};
