//! Documents of every type, made here, and what must hold for all of them.

mod build;
mod formats;
mod fuzz_tests;
mod hostile;

use super::{ExtractedText, SourceError, by_name};
use crate::chunking::{self, ChunkConfig};

/// Reads a document and checks what holds for every text (CHUNK-1 among it).
fn read(source: &str, bytes: &[u8]) -> Result<ExtractedText, SourceError> {
    let source = by_name(source).unwrap();
    let text = source.extract("/corpus/document", bytes)?;
    assert!(!text.text.trim().is_empty(), "{}: a success without text", source.name());
    assert!(!text.text.contains('\0'), "{}: zero bytes in the text", source.name());
    for section in &text.sections {
        assert!(text.text.is_char_boundary(section.start) && section.start < text.text.len(), "{section:?}");
        assert!(!section.heading.is_empty() && (1..=6).contains(&section.level), "{section:?}");
    }
    assert!(text.sections.is_sorted_by_key(|section| section.start), "{:?}", text.sections);
    assert!(text.pages.is_sorted_by_key(|page| (page.page, page.start)), "{:?}", text.pages);
    assert!(text.pages.iter().all(|page| page.start <= text.text.len()));
    let config = ChunkConfig::new(200, 20).unwrap();
    let id = riverrun_schemas::DocumentId::derive(&["corpus"]);
    let chunks = chunking::chunks("document", &text, source.chunker(), config, &id, "v").unwrap();
    assert!(!chunks.is_empty(), "{}: a text without chunks", source.name());
    for chunk in chunks {
        assert_eq!(&text.text[chunk.start as usize..chunk.end as usize], chunk.text);
    }
    Ok(text)
}

/// The code of the error that a document is refused with.
fn refusal(source: &str, bytes: &[u8]) -> String {
    match read(source, bytes) {
        Ok(text) => panic!("{source}: read as {text:?}"),
        Err(error) => {
            assert!(error.hint().is_some_and(|hint| !hint.is_empty()), "{error} has no fix");
            error.code().to_owned()
        }
    }
}
