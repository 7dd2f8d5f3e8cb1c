//! Old bytes are read for ever: every `golden/<Record>.v<N>.bin` decodes to the value in its `.json`, whatever the
//! schemas have become since. `UPDATE_GOLDEN=1` writes files for records that have none yet; it never overwrites.

use std::path::PathBuf;

use riverrun_schemas::agent::*;
use riverrun_schemas::canvases::*;
use riverrun_schemas::documents::*;
use riverrun_schemas::finetune::*;
use riverrun_schemas::ingest::*;
use riverrun_schemas::memory::*;
use riverrun_schemas::projects::*;
use riverrun_schemas::tokens::*;
use riverrun_schemas::tools::*;
use riverrun_schemas::{
    AnalysisId, BlobRef, ChainId, ChangeId, ChunkId, Decoded, DocumentId, EpisodeId, EventId, EventSet, Failure,
    FinetuneId, ForgetId, IngestId, NoteId, ProjectId, ProposalId, RunId, SessionName, SummaryId, TurnId, Usage,
    registry,
};

#[path = "golden/samples.rs"]
mod samples;
#[path = "golden/values.rs"]
mod values;

use samples::samples;

fn golden() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("golden")
}

/// Decodes on whatever topic the record's schema belongs to.
fn decode(bytes: &[u8]) -> String {
    use riverrun_schemas::Topic;
    fn shown<E: EventSet>(bytes: &[u8]) -> String {
        match E::decode(bytes).expect("golden bytes decode") {
            Decoded::Event(event) => format!("{event:#?}"),
            Decoded::UnknownType { record } => panic!("{record} is not known any more"),
        }
    }
    let (id, _) = riverrun_schemas::framing::unframe(bytes).expect("framed");
    match registry::by_id(id).expect("listed").topic {
        Topic::AgentCommands => shown::<AgentCommand>(bytes),
        Topic::AgentEvents => shown::<AgentEvent>(bytes),
        Topic::IngestCommands => shown::<IngestCommand>(bytes),
        Topic::IngestEvents => shown::<IngestEvent>(bytes),
        Topic::IngestChunks => shown::<ChunkEvent>(bytes),
        Topic::IngestEmbeddings => shown::<EmbeddingEvent>(bytes),
        Topic::MemoryEvents => shown::<MemoryEvent>(bytes),
        Topic::ProjectsCommands => shown::<ProjectCommand>(bytes),
        Topic::ProjectsEvents => shown::<ProjectEvent>(bytes),
        Topic::Tokens => shown::<TokenEvent>(bytes),
        Topic::ToolsCalls => shown::<ToolCall>(bytes),
        Topic::ToolsResults => shown::<ToolAnswer>(bytes),
        Topic::Documents => shown::<DocumentMessage>(bytes),
        Topic::FinetuneCommands => shown::<FinetuneCommand>(bytes),
        Topic::FinetuneEvents => shown::<FinetuneEvent>(bytes),
        Topic::Canvases => shown::<CanvasEvent>(bytes),
    }
}

#[test]
fn every_record_survives_writing_and_reading() {
    for (record, bytes, value) in samples() {
        assert_eq!(decode(&bytes), value, "{record}");
    }
}

#[test]
fn golden_bytes_of_every_stored_version_are_read() {
    for schema in registry::all() {
        let name = schema.record.rsplit('.').next().unwrap();
        let (bin, txt) = (
            golden().join(format!("{name}.v{}.bin", schema.version)),
            golden().join(format!("{name}.v{}.txt", schema.version)),
        );
        if !bin.exists() && std::env::var_os("UPDATE_GOLDEN").is_some() {
            let (_, bytes, value) =
                samples().into_iter().find(|(record, ..)| *record == schema.record).expect("a sample of every record");
            std::fs::write(&bin, bytes).unwrap();
            std::fs::write(&txt, value).unwrap();
        }
        let bytes = std::fs::read(&bin).unwrap_or_else(|e| {
            panic!("{}: {e}; write it with UPDATE_GOLDEN=1 cargo test -p riverrun-schemas", bin.display())
        });
        assert_eq!(decode(&bytes), std::fs::read_to_string(&txt).unwrap(), "{}", bin.display());
    }
}
