use riverrun_schemas::{ChunkId, DocumentId};
use serde_json::json;

use super::*;
use crate::retrieval::Scores;

const RHINE: &str = "# Rhine\n\nThe Rhine rises in the Swiss Alps. It flows 1,233 kilometres to the North Sea.";
const ELBE: &str = "The Elbe rises in the Giant Mountains. It flows through Hamburg.";

fn chunk(id: &str, text: &str, start: i64) -> SearchItem {
    SearchItem {
        chunk_id: ChunkId::derive(&[id]),
        document_id: DocumentId::derive(&[id]),
        source: format!("/docs/{id}.md"),
        text: text.to_owned(),
        score: 1.0,
        scores: Scores { dense: None, sparse: None, fused: 1.0, rerank: None },
        span: Span { start, end: start + text.len() as i64 },
        chunk: None,
        page: None,
        metadata: json!({}),
    }
}

fn checked(answer: &str) -> Checked {
    checked_for(answer, "Where do the rivers rise?")
}

fn checked_for(answer: &str, question: &str) -> Checked {
    let (rhine, elbe) = (chunk("rhine", RHINE, 100), chunk("elbe", ELBE, 0));
    let checked = check(answer, question, &[&rhine, &elbe]);
    for citation in &checked.citations {
        let (text, start) = if citation.n == 1 { (RHINE, 100) } else { (ELBE, 0) };
        let span = (citation.span.start - start) as usize..(citation.span.end - start) as usize;
        assert_eq!(&text[span], citation.quote, "CITE-2");
    }
    for pair in checked.sentences.windows(2) {
        assert!(pair[0].span.end <= pair[1].span.start);
    }
    checked
}

fn sentence(checked: &Checked, index: usize) -> (&str, &[usize], Option<bool>) {
    let sentence = &checked.sentences[index];
    (&checked.answer[sentence.span.start as usize..sentence.span.end as usize], &sentence.citations, sentence.supported)
}

#[test]
fn given_markers_in_every_place_when_checked_then_they_belong_to_the_right_sentence() {
    for answer in [
        "The Rhine rises in the Swiss Alps [1]. The Elbe rises in the Giant Mountains [2].",
        "The Rhine rises in the Swiss Alps.[1] The Elbe rises in the Giant Mountains.[2]",
        "The Rhine rises in the Swiss Alps. [1] The Elbe rises in the Giant Mountains. [2]",
        "The Rhine [1] rises in the Swiss Alps. The Elbe [2] rises in the Giant Mountains.",
        "[1] The Rhine rises in the Swiss Alps.\n[2] The Elbe rises in the Giant Mountains.",
        "- The Rhine rises in the Swiss Alps [1]\n- The Elbe rises in the Giant Mountains [2]\n",
        "The Rhine rises in the Swiss Alps.\n[1]\nThe Elbe rises in the Giant Mountains.\n[2]",
    ] {
        let checked = checked(answer);
        assert_eq!(checked.answer, answer);
        let found: Vec<_> = checked.sentences.iter().map(|s| (s.citations.clone(), s.supported)).collect();
        assert_eq!(found, [(vec![1], Some(true)), (vec![2], Some(true))], "{answer}");
        let quotes: Vec<_> =
            checked.citations.iter().map(|c| (c.n, c.quote.as_str(), c.supported, c.attributed)).collect();
        assert_eq!(
            quotes,
            [
                (1, "The Rhine rises in the Swiss Alps.", true, Attribution::Model),
                (2, "The Elbe rises in the Giant Mountains.", true, Attribution::Model)
            ],
            "{answer}"
        );
    }
}

#[test]
fn given_a_sentence_without_a_number_when_a_chunk_says_it_then_the_number_is_added_and_marked() {
    let checked = checked("The Rhine flows 1233 kilometres to the North Sea. It is a nice river to swim in!");
    assert_eq!(checked.answer, "The Rhine flows 1233 kilometres to the North Sea [1]. It is a nice river to swim in!");
    assert_eq!(sentence(&checked, 0), ("The Rhine flows 1233 kilometres to the North Sea [1].", &[1][..], Some(true)));
    assert_eq!(sentence(&checked, 1), ("It is a nice river to swim in!", &[][..], Some(false)));
    assert_eq!(checked.citations.len(), 1);
    assert_eq!((checked.citations[0].attributed, checked.citations[0].supported), (Attribution::Overlap, true));
    assert_eq!(checked.citations[0].quote, "It flows 1,233 kilometres to the North Sea.");
}

#[test]
fn given_a_short_answer_when_checked_then_the_question_helps_to_attribute_it() {
    let answer = checked_for("Hamburg.", "Through which city does the Elbe flow?");
    assert_eq!(answer.answer, "Hamburg [2].");
    assert_eq!(answer.sentences[0].supported, Some(true));
    let unrelated = checked_for("Hamburg.", "What is the capital of Germany?");
    assert_eq!(unrelated.answer, "Hamburg.");
    assert_eq!(unrelated.sentences[0].supported, Some(false));
}

#[test]
fn given_a_wrong_number_when_checked_then_it_is_unsupported_and_the_right_one_is_added() {
    let checked = checked("The Elbe rises in the Giant Mountains [1].");
    assert_eq!(checked.answer, "The Elbe rises in the Giant Mountains [1] [2].");
    let judged: Vec<_> = checked.citations.iter().map(|c| (c.n, c.supported, c.attributed)).collect();
    assert_eq!(judged, [(1, false, Attribution::Model), (2, true, Attribution::Overlap)]);
    assert_eq!(checked.sentences[0].supported, Some(true));
}

#[test]
fn given_an_invented_number_in_a_sentence_when_checked_then_it_is_not_supported() {
    let checked = checked("The Rhine flows 1,320 kilometres to the North Sea [1].");
    assert_eq!(checked.sentences[0].supported, Some(false));
    assert!(!checked.citations[0].supported);
}

#[test]
fn given_a_sentence_from_two_chunks_when_checked_then_both_support_it_together() {
    let checked = checked(
        "The Rhine rises in the Swiss Alps and the Elbe rises in the Giant Mountains and flows through Hamburg [1][2].",
    );
    assert_eq!(checked.sentences[0].supported, Some(true));
    assert!(checked.citations.iter().all(|citation| citation.supported), "{:?}", checked.citations);
}

#[test]
fn given_a_refusal_or_an_empty_answer_when_checked_then_nothing_is_claimed() {
    let refusal = checked("The sources do not say.");
    assert_eq!((refusal.sentences[0].supported, refusal.citations.len()), (None, 0));
    assert!(is_refusal("The sources do not say [1]!") && !is_refusal("The Rhine."));
    assert_eq!(checked("").sentences, []);
    assert_eq!(checked("Yes.").sentences[0].supported, None);
    let only_marker = checked("[1]");
    assert_eq!((only_marker.answer.as_str(), only_marker.sentences.len()), ("[1]", 0));
}

#[test]
fn given_a_refusal_beside_other_sentences_when_checked_then_supported_ones_make_it_an_answer() {
    for (answer, is_answer) in [
        ("The Rhine rises in the Swiss Alps [1]. The sources do not say.", true),
        ("The sources do not say. The Rhine rises in the Swiss Alps.", true),
        ("The Rhine is haunted by pirates. The sources do not say.", false),
        ("Yes. The sources do not say.", false),
        ("The sources do not say [1].", false),
        ("The Rhine is haunted by pirates.", true),
    ] {
        assert_eq!(checked(answer).is_answer(), is_answer, "{answer}");
    }
}

#[test]
fn given_no_chunks_when_checked_then_nothing_is_cited() {
    let checked = check("The Rhine rises [1].", "q", &[]);
    assert_eq!(checked.citations, []);
    assert_eq!(checked.sentences[0].supported, Some(false));
}

#[test]
fn given_a_chunk_that_is_shown_with_its_surroundings_when_they_are_cited_then_the_span_is_theirs() {
    // The chunk is the second sentence, on page 7; the model read the heading and the first one, too.
    let own = RHINE.find("It flows").unwrap() as i64;
    let wide = SearchItem {
        chunk: Some(Span { start: 100 + own, end: 100 + RHINE.len() as i64 }),
        page: Some(7),
        ..chunk("rhine", RHINE, 100)
    };
    for (answer, quote, page) in [
        ("The Rhine rises in the Swiss Alps [1].", "The Rhine rises in the Swiss Alps.", None),
        ("It flows 1233 kilometres to the North Sea [1].", "It flows 1,233 kilometres to the North Sea.", Some(7)),
    ] {
        let checked = check(answer, "Where does the Rhine rise?", &[&wide]);
        let citation = &checked.citations[0];
        let at = 100 + RHINE.find(quote).unwrap() as i64;
        assert_eq!((citation.span, citation.quote.as_str()), (Span { start: at, end: at + quote.len() as i64 }, quote));
        assert_eq!((Some(citation.chunk_span), citation.page, citation.supported), (wide.chunk, page, true));
    }
}
