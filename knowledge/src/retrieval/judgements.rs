//! Judgements that a collection is tuned to.

use std::collections::{BTreeMap, BTreeSet};

use riverrun_schemas::DocumentId;
use serde::{Deserialize, Serialize};

use super::SearchRequest;

/// A question with what people found of documents.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct JudgedQuestion {
    /// Its text.
    pub query: String,
    /// Grades of documents, higher is better; above 0 is relevant. What is not judged counts as not relevant.
    pub documents: BTreeMap<DocumentId, f64>,
}

impl JudgedQuestion {
    /// Most questions of one tuning.
    pub const MAX: usize = 2_000;
    /// Fewest with a relevant document: two to test on in each of the parts of a cross-validation.
    pub const MIN: usize = 10;
    /// Most documents that are judged for a question.
    pub const MAX_DOCUMENTS: usize = 1_000;
    /// Highest grade: gains double with each.
    pub const MAX_GRADE: f64 = 10.0;

    /// What is wrong with judgements, by whomever they were written; `None` when they can be learned from.
    pub fn fault(all: &[Self]) -> Option<String> {
        if all.len() > Self::MAX {
            return Some(format!("there are {} questions; at most {} are learned from", all.len(), Self::MAX));
        }
        let mut seen = BTreeSet::new();
        // One that is both learned from and tested on would tell of itself.
        all.iter().enumerate().find_map(|(at, question)| match seen.insert(question.query.trim()) {
            true => question.own_fault().map(|reason| format!("question {at} {reason}")),
            false => Some(format!("question {at} is among the questions before it")),
        })
    }

    fn own_fault(&self) -> Option<String> {
        let (bytes, judged) = (self.query.len(), self.documents.len());
        if self.query.trim().is_empty() {
            return Some("has no text".to_owned());
        }
        if bytes > SearchRequest::MAX_QUERY_BYTES {
            return Some(format!("has {bytes} bytes; at most {} are searched for", SearchRequest::MAX_QUERY_BYTES));
        }
        if judged > Self::MAX_DOCUMENTS {
            return Some(format!("has {judged} documents; at most {} are judged", Self::MAX_DOCUMENTS));
        }
        let (document, grade) = self.documents.iter().find(|(_, grade)| !(0.0..=Self::MAX_GRADE).contains(*grade))?;
        Some(format!("has the grade {grade} for {document}; grades are 0 to {}", Self::MAX_GRADE))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn question(query: &str, grades: &[f64]) -> JudgedQuestion {
        let document = |at: usize| DocumentId::derive(&[&at.to_string()]);
        let documents = grades.iter().enumerate().map(|(at, grade)| (document(at), *grade)).collect();
        JudgedQuestion { query: query.to_owned(), documents }
    }

    #[test]
    fn given_judgements_that_nobody_checked_when_they_are_looked_at_then_what_can_not_be_learned_from_is_named() {
        let good = || question("what?", &[0.0, 10.0]);
        assert_eq!(JudgedQuestion::fault(&[good(), question("why?", &[])]), None);
        let many = (0..=JudgedQuestion::MAX).map(|number| question(&number.to_string(), &[1.0])).collect();
        let long = "x".repeat(SearchRequest::MAX_QUERY_BYTES + 1);
        for (judged, word) in [
            (many, "2001 questions"),
            (vec![good(), question(" what? ", &[1.0])], "question 1 is among"),
            (vec![good(), question(" ", &[1.0])], "question 1 has no text"),
            (vec![question(&long, &[1.0])], "question 0 has 16385 bytes"),
            (vec![question("x", &[1.0; 1_001])], "1001 documents"),
            (vec![question("x", &[1.0, -0.5])], "the grade -0.5"),
            (vec![question("x", &[1e300])], "grades are 0 to 10"),
            (vec![question("x", &[f64::NAN])], "the grade NaN"),
        ] {
            let found = JudgedQuestion::fault(&judged).unwrap_or_default();
            assert!(found.contains(word), "{found:?} lacks {word:?}");
        }
    }
}
