//! Changed records of every topic. `fuzz/README.md` says how to try more of them.

use std::path::Path;

use crate::agent::{AgentCommand, AgentEvent};
use crate::canvases::CanvasEvent;
use crate::documents::DocumentMessage;
use crate::finetune::{FinetuneCommand, FinetuneEvent};
use crate::framing::{frame, unframe};
use crate::fuzz::{Target, run};
use crate::ingest::{ChunkEvent, EmbeddingEvent, IngestCommand, IngestEvent};
use crate::memory::MemoryEvent;
use crate::projects::{ProjectCommand, ProjectEvent};
use crate::tokens::TokenEvent;
use crate::tools::{ToolAnswer, ToolCall};
use crate::{Decoded, EventSet, registry};

/// The stored bytes of every version of every record.
fn golden() -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("golden");
    let mut paths: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.retain(|path| path.extension().is_some_and(|end| end == "bin"));
    // The same seed must make the same inputs everywhere.
    paths.sort();
    paths.iter().map(|path| std::fs::read(path).unwrap()).collect()
}

/// What can be read can be written, and is then read again.
fn survives<E: EventSet>(bytes: &[u8]) {
    let Ok(Decoded::Event(event)) = E::decode(bytes) else { return };
    let written = event.encode().unwrap();
    assert!(matches!(E::decode(&written), Ok(Decoded::Event(_))), "{event:?} can't be read again");
    // Both are asked for wherever an event goes.
    assert!(!event.key().is_empty() || !event.event_id().to_string().is_empty());
}

fn survives_on_every_topic(bytes: &[u8]) {
    survives::<AgentCommand>(bytes);
    survives::<AgentEvent>(bytes);
    survives::<CanvasEvent>(bytes);
    survives::<ChunkEvent>(bytes);
    survives::<DocumentMessage>(bytes);
    survives::<EmbeddingEvent>(bytes);
    survives::<FinetuneCommand>(bytes);
    survives::<FinetuneEvent>(bytes);
    survives::<IngestCommand>(bytes);
    survives::<IngestEvent>(bytes);
    survives::<MemoryEvent>(bytes);
    survives::<ProjectCommand>(bytes);
    survives::<ProjectEvent>(bytes);
    survives::<TokenEvent>(bytes);
    survives::<ToolAnswer>(bytes);
    survives::<ToolCall>(bytes);
}

#[test]
fn avro_frames_are_read_or_refused() {
    let corpus = golden();
    let target = Target { name: "avro_frames", corpus: &corpus, words: &["run_", "default", "unknown"], inputs: 3_000 };
    run(&target, survives_on_every_topic);
}

#[test]
fn avro_bodies_behind_a_good_frame_are_read_or_refused() {
    // The header stays whole, so that every input gets as far as the body.
    let ids: Vec<u32> = registry::all().iter().map(|schema| schema.id).collect();
    let corpus: Vec<Vec<u8>> =
        golden().iter().filter_map(|bytes| unframe(bytes).ok()).map(|(_, body)| body.to_vec()).collect();
    let target = Target { name: "avro_bodies", corpus: &corpus, words: &["run_", "default"], inputs: 3_000 };
    run(&target, |bytes| {
        // Which schema it is said to be follows from the bytes: a chance that repeats.
        let sum = bytes.iter().fold(0_usize, |sum, byte| sum.wrapping_mul(31).wrapping_add(usize::from(*byte)));
        survives_on_every_topic(&frame(ids[sum % ids.len()], bytes));
    });
}
