//! Licence expressions as SPDX writes them (specification 2.3, annex D), and what they ask.

/// Ids with what they ask.
const LICENCES: &str = include_str!("../../data/licences.txt");
/// Longest expression, in words and parentheses.
const MAX_TOKENS: usize = 200;
/// How deep parentheses may be.
const MAX_DEPTH: usize = 20;

/// What a licence asks of a work that contains what is under it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Duty {
    /// Notices.
    Permissive,
    /// The source of its own files.
    Weak,
    /// The source of the whole.
    Strong,
}

/// The duty of an expression: of alternatives the least, of what holds together the most.
///
/// # Errors
/// Says what is no expression or no known id.
pub(super) fn duty(expression: &str) -> Result<Duty, String> {
    let spaced = expression.replace('(', " ( ").replace(')', " ) ");
    let tokens: Vec<&str> = spaced.split_whitespace().collect();
    if tokens.is_empty() || tokens.len() > MAX_TOKENS {
        return Err("it is empty or too long".to_owned());
    }
    let mut reader = Reader { tokens, at: 0 };
    let found = reader.any(0)?;
    match reader.peek() {
        None => Ok(found),
        Some(token) => Err(format!("{token:?} is at the wrong place")),
    }
}

struct Reader<'t> {
    tokens: Vec<&'t str>,
    at: usize,
}

impl<'t> Reader<'t> {
    fn peek(&self) -> Option<&'t str> {
        self.tokens.get(self.at).copied()
    }

    fn takes(&mut self, word: &str) -> bool {
        let is_next = self.peek().is_some_and(|token| token.eq_ignore_ascii_case(word));
        self.at += usize::from(is_next);
        is_next
    }

    fn any(&mut self, depth: usize) -> Result<Duty, String> {
        let mut least = self.all(depth)?;
        while self.takes("OR") {
            least = least.min(self.all(depth)?);
        }
        Ok(least)
    }

    fn all(&mut self, depth: usize) -> Result<Duty, String> {
        let mut most = self.one(depth)?;
        while self.takes("AND") {
            most = most.max(self.one(depth)?);
        }
        Ok(most)
    }

    fn one(&mut self, depth: usize) -> Result<Duty, String> {
        if depth > MAX_DEPTH {
            return Err("its parentheses are too deep".to_owned());
        }
        if self.takes("(") {
            let found = self.any(depth + 1)?;
            return if self.takes(")") { Ok(found) } else { Err("a parenthesis is not closed".to_owned()) };
        }
        let id = self.peek().ok_or_else(|| "an id is missing at its end".to_owned())?;
        self.at += 1;
        let found = of_id(id)?;
        if !self.takes("WITH") {
            return Ok(found);
        }
        let exception = self.peek().ok_or_else(|| "an exception is missing at its end".to_owned())?;
        self.at += 1;
        if !is_word(exception) {
            return Err(format!("{exception:?} is no exception"));
        }
        // Exceptions allow more: linking, what a compiler puts into programs.
        Ok(found.min(Duty::Weak))
    }
}

fn is_word(text: &str) -> bool {
    text.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | ':' | '+'))
}

fn of_id(id: &str) -> Result<Duty, String> {
    if (id.starts_with("LicenseRef-") || id.starts_with("DocumentRef-")) && is_word(id) {
        // A text of its own: nothing can be said of it.
        return Ok(Duty::Permissive);
    }
    let class = LICENCES
        .lines()
        .filter(|line| !line.starts_with('#'))
        .filter_map(|line| line.split_once(' '))
        .find(|(known, _)| known.eq_ignore_ascii_case(id))
        .map(|(_, class)| class);
    match class {
        Some("strong") => Ok(Duty::Strong),
        Some("weak") => Ok(Duty::Weak),
        Some(_) => Ok(Duty::Permissive),
        None => Err(format!("{id:?} is no id that is known here")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn given_expressions_when_they_are_read_then_choices_ask_the_least_and_sums_the_most() {
        for (text, expected) in [
            ("MIT", Duty::Permissive),
            ("mit OR Apache-2.0", Duty::Permissive),
            ("GPL-3.0-only", Duty::Strong),
            ("GPL-2.0-or-later OR MIT", Duty::Permissive),
            ("MIT AND (GPL-2.0-only OR LGPL-2.1-only)", Duty::Weak),
            ("MIT AND GPL-3.0+", Duty::Strong),
            ("MIT OR MIT AND GPL-3.0-only", Duty::Permissive),
            ("GPL-2.0-only WITH Classpath-exception-2.0", Duty::Weak),
            ("LicenseRef-ours", Duty::Permissive),
        ] {
            assert_eq!(duty(text), Ok(expected), "{text}");
        }
    }

    #[test]
    fn given_what_is_no_expression_when_it_is_read_then_it_is_refused() {
        let deep = format!("{}MIT{}", "(".repeat(40), ")".repeat(40));
        for text in [
            "",
            "UNLICENSED",
            "SEE LICENSE IN x",
            "MIT OR",
            "(MIT",
            "MIT)",
            "AND",
            "MIT WITH",
            "MIT MIT",
            deep.as_str(),
        ] {
            assert!(duty(text).is_err(), "{text}");
        }
    }
}
