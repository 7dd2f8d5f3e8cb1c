//! Thoughts that are more than thoughts: a draft, the outcome of a plan's step. What they are stands in their first line,
//! so that people can read it and a run's state is folded from nothing but its steps.

/// What a thought is, where it is more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mark {
    /// The n-th draft of an answer.
    Draft(usize),
    /// The plan's n-th step is done; the text is its result.
    Done(usize),
    /// The plan's n-th step can't be done as planned; the text says why.
    Failed(usize),
    /// No plan could be made.
    NoPlan,
    /// An answer that the passages do not hold.
    Unbacked,
    /// An answer without words.
    Empty,
}

impl Mark {
    /// The text of a step.
    pub(super) fn write(self, text: &str) -> String {
        let head = match self {
            Mark::Draft(n) => format!("[draft {n}]"),
            Mark::Done(n) => format!("[step {n} done]"),
            Mark::Failed(n) => format!("[step {n} failed]"),
            Mark::NoPlan => "[no plan]".to_owned(),
            Mark::Unbacked => "[not in the passages]".to_owned(),
            Mark::Empty => "[empty answer]".to_owned(),
        };
        format!("{head}\n{}", text.trim())
    }

    /// The mark of a step's text, and the text behind it.
    pub(super) fn read(text: &str) -> Option<(Mark, &str)> {
        let (head, rest) = text.split_once('\n').unwrap_or((text, ""));
        let words: Vec<&str> = head.strip_prefix('[')?.strip_suffix(']')?.split(' ').collect();
        let mark = match words[..] {
            ["draft", n] => Mark::Draft(n.parse().ok()?),
            ["step", n, "done"] => Mark::Done(n.parse().ok()?),
            ["step", n, "failed"] => Mark::Failed(n.parse().ok()?),
            ["no", "plan"] => Mark::NoPlan,
            ["not", "in", "the", "passages"] => Mark::Unbacked,
            ["empty", "answer"] => Mark::Empty,
            _ => return None,
        };
        Some((mark, rest))
    }

    /// A model's own words without what would read as a mark: only the agent sets marks.
    pub(super) fn strip(text: &str) -> &str {
        let mut text = text.trim();
        while let Some((_, rest)) = Mark::read(text) {
            text = rest.trim();
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_is_read_as_it_was_written_and_a_model_cannot_forge_one() {
        for mark in [Mark::Draft(2), Mark::Done(1), Mark::Failed(12), Mark::NoPlan, Mark::Unbacked, Mark::Empty] {
            assert_eq!(Mark::read(&mark.write(" two\nlines ")), Some((mark, "two\nlines")));
            assert_eq!(Mark::strip(&mark.write(&Mark::Draft(9).write("words"))), "words");
        }
        for text in ["", "[1] says so", "draft 1", "[draft]", "[draft x]", "[step 1]\nx", "[draft -1]\nx"] {
            assert_eq!(Mark::read(text), None, "{text:?}");
            assert_eq!(Mark::strip(text), text);
        }
    }
}
