//! Whether an answer only goes round in circles. Small models, and greedy ones of any size, fall into saying the same over and over, and
//! would go on until the context is full (Holtzman et al., "The Curious Case of Neural Text Degeneration", 2020).
//!
//! What people ask for repeats, too: refrains, tables, equal lines, arrays of zeros. So it takes the same tokens in the same order without
//! a single other one between them, [`LEAST_TIMES`] times and over so many tokens as the settings say. Numbered lines, rows that differ and
//! verses around a refrain are none of that, however long they are.

/// How often the same has to come before it counts, whatever its length.
const LEAST_TIMES: usize = 8;
/// Longest part that is looked for, in tokens: about a page. What comes back later than that is not found.
const MAX_PART: usize = 512;
/// Tokens between two looks.
const EVERY: usize = 16;
/// Tokens that are enough where an answer has reached its limit anyway.
const ENOUGH_AT_ITS_END: usize = 256;

/// Whether an answer ends in so many tokens that are the same part over and over. It is asked for every token, and looks now and then.
/// `least` is how many tokens all of its copies have to have together; 0 is never.
pub(super) fn goes_in_circles<T: PartialEq>(answer: &[T], least: usize) -> bool {
    let is_due = answer.len().is_multiple_of(EVERY);
    least > 0 && is_due && answer.len() >= least && (1..=MAX_PART).any(|part| is_circle(answer, part, least))
}

/// Whether an answer that has reached its limit ends so: nothing is lost by telling it, and it may be much shorter.
pub(super) fn ends_in_circles<T: PartialEq>(answer: &[T], least: usize) -> bool {
    let enough = least.min(ENOUGH_AT_ITS_END);
    enough > 0 && (1..=MAX_PART).any(|part| is_circle(answer, part, enough))
}

/// Whether the end is copies of its last `part` tokens. The last copy may be one that has just begun.
fn is_circle<T: PartialEq>(answer: &[T], part: usize, least: usize) -> bool {
    let needed = least.max(part * LEAST_TIMES);
    let Some(from) = answer.len().checked_sub(needed) else { return false };
    let end = &answer[from..];
    // From the back: nearly every length fails at the first token.
    end.iter().rev().zip(end.iter().rev().skip(part)).all(|(later, earlier)| later == earlier)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEAST: usize = 1_024;

    /// A text in pieces such as those of a vocabulary: words with the space before them, and everything else by itself.
    fn tokens(text: &str) -> Vec<&str> {
        let (mut cuts, mut before) = (vec![0], '\n');
        for (at, c) in text.char_indices() {
            let goes_on = c.is_alphanumeric() && (before.is_alphanumeric() || before == ' ');
            if at > 0 && !goes_on {
                cuts.push(at);
            }
            before = c;
        }
        cuts.push(text.len());
        cuts.windows(2).map(|ends| &text[ends[0]..ends[1]]).collect()
    }

    /// Where an answer is ended.
    fn ended_at(answer: &[&str], least: usize) -> Option<usize> {
        (1..=answer.len()).find(|end| goes_in_circles(&answer[..*end], least))
    }

    #[test]
    fn given_an_answer_that_says_the_same_for_ever_when_it_is_long_enough_then_it_is_ended_soon() {
        let beginning = "The river is long. It has three bridges. ";
        let longer = "one two three four five six seven eight nine ten ".repeat(10);
        let page = (0..200).map(|number| format!("w{number} ")).collect::<String>();
        for part in [
            "the ",
            "no, no, ",
            "The capital of France is Paris. ",
            "- I am a language model.\n",
            longer.as_str(),
            page.as_str(),
        ] {
            let long = tokens(part).len() + 1;
            let text = beginning.to_owned() + &part.repeat(1 + 8_000 / long);
            let ended = ended_at(&tokens(&text), LEAST);
            let latest = tokens(beginning).len() + LEAST.max(LEAST_TIMES * long) + 2 * EVERY;
            assert!(ended.is_some_and(|at| at >= LEAST && at <= latest), "{part:.20}: {ended:?}, {latest}");
        }
    }

    #[test]
    fn given_another_token_within_a_circle_when_it_goes_on_then_counting_begins_behind_it() {
        let mut answer = vec!["a"; LEAST - 1];
        answer.push("b");
        answer.extend(vec!["a"; LEAST - 1]);
        assert_eq!(ended_at(&answer, LEAST), None);
        answer.extend(vec!["a"; 1 + EVERY]);
        assert!(ended_at(&answer, LEAST).is_some());
    }

    #[test]
    fn given_what_people_ask_for_when_it_repeats_then_it_is_not_ended() {
        let line = "I will not talk in class.\n";
        let verse = |number: usize| format!("verse {number} goes here\nand has {number} more\nof its own\n");
        let refrain = "Row, row, row your boat,\ngently down the stream.\nMerrily, merrily, merrily, merrily,\nlife is but a dream.\n\n";
        let row = |number: usize| format!("| {number} | yes | yes | yes | yes |\n");
        let head = "| a | b | c | d | e |\n|---|---|---|---|---|\n";
        let branch = |number: usize| format!("    if x == {number} {{\n        return {number};\n    }}\n");
        for (what, text) in [
            ("numbered lines", (1..=400).map(|number| format!("{number}. {line}")).collect::<String>()),
            ("a hundred equal lines", line.repeat(100)),
            ("a poem with a refrain", (1..=60).map(|number| verse(number) + refrain).collect()),
            ("a song of seven equal verses", refrain.repeat(7)),
            ("a table", head.to_owned() + &(1..=200).map(row).collect::<String>()),
            ("a table of equal rows", head.to_owned() + &"| no | no | no | no | no |\n".repeat(40)),
            ("code of equal shape", (0..200).map(branch).collect()),
            ("an array of zeros", format!("let zeros = [{}];\n", "0, ".repeat(256))),
            ("a matrix of zeros", "[0, 0, 0, 0, 0, 0, 0, 0],\n".repeat(40)),
            ("a line across the page", "- ".repeat(120)),
            ("prose", (0_usize..3_000).map(|number| format!("w{} ", number * number % 977 + number)).collect()),
        ] {
            assert_eq!(ended_at(&tokens(&text), LEAST), None, "{what}");
        }
    }

    #[test]
    fn given_a_long_part_when_it_comes_again_then_it_is_ended_at_its_eighth_time_and_longer_ones_are_not_looked_for() {
        let part: Vec<usize> = (0..MAX_PART).collect();
        assert!(!goes_in_circles(&part.repeat(LEAST_TIMES - 1), LEAST));
        assert!(goes_in_circles(&part.repeat(LEAST_TIMES), LEAST));
        let longer: Vec<usize> = (0..=MAX_PART).collect();
        let answer = longer.repeat(20);
        assert!(!(1..=answer.len()).any(|end| goes_in_circles(&answer[..end], LEAST)));
    }

    #[test]
    fn given_how_much_is_needed_when_an_answer_circles_then_it_is_ended_there_or_never() {
        let answer = vec!["a"; 10_000];
        for (least, expected) in [(0, None), (100, Some(112)), (512, Some(512)), (4_096, Some(4_096)), (20_000, None)] {
            assert_eq!(ended_at(&answer, least), expected, "{least}");
        }
        assert_eq!(ended_at(&answer[..500], 512), None);
    }

    #[test]
    fn given_an_answer_at_its_limit_when_its_end_is_the_same_over_and_over_then_less_is_enough_and_nothing_is_told_unasked()
     {
        let text = "The river is long. ".repeat(100);
        let answer: Vec<&str> = tokens(&text).into_iter().take(301).collect();
        assert!(ends_in_circles(&answer, LEAST) && ends_in_circles(&answer, 256));
        assert!(!ends_in_circles(&answer, 0) && !ends_in_circles(&answer[..200], LEAST));
        let mut other = answer.clone();
        other.extend(["and", " so", " it", " ends"]);
        assert!(!ends_in_circles(&other, LEAST), "what is behind a circle is no circle");
    }
}
