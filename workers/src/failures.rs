//! What is said of errors: as failures of events, and as the reason of a delivery that is given up, which is all that is left of its
//! error then and so has the fix in it, too.

use std::fmt::Display;

use riverrun_models::ModelError;
use riverrun_schemas::Failure;
use riverrun_stores::StoreError;

/// Parts message and fix in a reason.
const HINT_MARK: &str = "\nhint: ";

/// A reason from which [`failure_of`] has message and fix.
pub(crate) fn reason(message: impl Display, hint: Option<impl Display>) -> String {
    match hint {
        Some(hint) => format!("{message}{HINT_MARK}{hint}"),
        None => message.to_string(),
    }
}

/// The failure that a reason tells, once a delivery is given up.
pub(crate) fn failure_of(code: &str, reason: &str) -> Failure {
    match reason.split_once(HINT_MARK) {
        Some((message, hint)) => Failure::new(code, message).with_hint(hint),
        None => Failure::new(code, reason),
    }
}

pub(crate) fn store_failure(error: &StoreError) -> Failure {
    Failure { code: error.code().to_owned(), message: error.to_string(), hint: error.hint() }
}

pub(crate) fn model_failure(error: &ModelError) -> Failure {
    Failure { code: error.code().to_owned(), message: error.to_string(), hint: error.hint() }
}

#[cfg(test)]
mod tests {
    use riverrun_schemas::{Collection, Namespace};

    use super::*;
    use crate::runtime::WorkError;

    #[test]
    fn given_an_error_with_a_fix_or_without_when_its_delivery_is_given_up_then_the_failure_says_both() {
        let told = |hint: Option<&str>| failure_of("busy", &reason("it is busy", hint));
        assert_eq!(told(Some("wait")), Failure::new("busy", "it is busy").with_hint("wait"));
        assert_eq!(told(None), Failure::new("busy", "it is busy"));
    }

    #[test]
    fn given_an_error_of_a_store_when_its_delivery_is_given_up_then_the_failure_is_the_one_that_is_told_at_once() {
        let server = StoreError::Server {
            service: "qdrant",
            address: "http://127.0.0.1:6334".to_owned(),
            reason: "connection refused".to_owned(),
            fix: "start the server".to_owned(),
        };
        let notes = Collection::new(Namespace::default(), "notes".parse().unwrap());
        for (error, may_pass) in
            [(server, true), (StoreError::NoCollection(notes), false), (StoreError::ShuttingDown, true)]
        {
            let told = store_failure(&error);
            let (code, reason, is_tried_again) = match WorkError::from(error) {
                WorkError::Retry { code, reason } => (code, reason, true),
                WorkError::Poison { code, reason } | WorkError::Fatal { code, reason } => (code, reason, false),
            };
            assert_eq!((failure_of(&code, &reason), is_tried_again), (told, may_pass));
        }
    }
}
