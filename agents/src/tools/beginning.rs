//! What a model is shown of a result that is too large for an event; the whole lies in the blob store. Pure.

use serde_json::{Value, json};

/// The list in a search's result.
const PASSAGES: &str = "passages";

/// A beginning of a result, as JSON of at most `most` bytes: a search keeps its first passages, every other result becomes
/// the beginning of its text.
pub fn beginning(result: &Value, most: usize) -> Value {
    first_passages(result, most).unwrap_or_else(|| first_words(&result.to_string(), most))
}

fn first_passages(result: &Value, most: usize) -> Option<Value> {
    let passages = result.get(PASSAGES)?.as_array()?;
    let with = |kept: &[Value]| {
        let mut shorter = result.clone();
        shorter[PASSAGES] = kept.into();
        shorter
    };
    let mut size = with(&[]).to_string().len();
    let fits = |passage: &&Value| {
        size += passage.to_string().len() + 1; // and the comma
        size <= most
    };
    let kept = passages.iter().take_while(fits).count();
    (kept > 0).then(|| with(&passages[..kept]))
}

/// Text that is JSON again, whatever its letters become there.
fn first_words(text: &str, most: usize) -> Value {
    let mut end = text.floor_char_boundary(most.saturating_sub(2));
    loop {
        let words = json!(&text[..end]);
        let size = words.to_string().len();
        if size <= most || end == 0 {
            return words;
        }
        end = text.floor_char_boundary(end.saturating_sub(size - most));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn passages(sizes: &[usize]) -> Value {
        let all: Vec<Value> = sizes.iter().map(|size| json!({ "text": "x".repeat(*size) })).collect();
        json!({ "query": "q", "passages": all })
    }

    #[test]
    fn given_a_search_when_it_is_too_large_then_its_first_passages_stay_whole() {
        for (sizes, kept) in [(vec![10, 10, 10_000], 2), (vec![400, 400, 400], 2), (vec![10; 5], 5)] {
            let short = beginning(&passages(&sizes), 1_000);
            assert_eq!(short["passages"].as_array().unwrap().len(), kept, "{sizes:?}");
            assert_eq!(short["passages"][0]["text"].as_str().unwrap().len(), sizes[0]);
            assert_eq!(short["query"], "q");
            assert!(short.to_string().len() <= 1_000);
        }
    }

    #[test]
    fn given_any_other_result_when_it_is_too_large_then_it_is_the_beginning_of_its_text() {
        let long = json!({ "page": "Größe \"x\"\n".repeat(1_000) });
        for result in [long.clone(), json!("a".repeat(5_000)), json!([long]), passages(&[5_000])] {
            for most in [100, 101, 102, 103, 1_000] {
                let short = beginning(&result, most);
                let text = short.as_str().unwrap_or_else(|| panic!("{short}"));
                assert!(result.to_string().starts_with(text), "{text}");
                let size = short.to_string().len();
                assert!((most / 3..=most).contains(&size), "{size} of {most}");
            }
        }
    }
}
