//! The secrets of a file, and what stands for them where others read: a word for each in what a model gets, which is put back
//! in its answer, and one word for all in what is stored and shown.

use std::borrow::Cow;
use std::collections::HashSet;

use crate::analyzers::secrets_in;
use crate::copy::Files;
use crate::text::FileText;
use crate::words::Words;

/// What stands for a secret that nobody puts back.
const SHOWN: &str = "[secret]";
/// What the words for a model begin with.
const MARK: &str = "MASKED_SECRET_";
/// A line of a longer secret that is masked on its own, in bytes.
const MIN_LINE: usize = 8;

/// The secrets of a file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Masks {
    secrets: Words,
    /// The same line by line.
    lines: Words,
    mark: String,
}

impl Masks {
    /// Those that stand in the text of a file.
    pub fn of(path: &str, text: &str) -> Self {
        Self::named(secrets_in(path, text), mark_for(text))
    }

    /// Those of all files, for what a program says of them.
    pub fn of_all(files: &Files) -> Self {
        let texts = files.iter().filter_map(|(path, content)| Some((path, FileText::read(content)?.text)));
        let found: Vec<String> = texts
            .flat_map(|(path, text)| secrets_in(path, &text).into_iter().map(str::to_owned).collect::<Vec<_>>())
            .collect();
        Self::named(found.iter().map(String::as_str).collect(), MARK.to_owned())
    }

    fn named(secrets: Vec<&str>, mark: String) -> Self {
        let lines = secrets.iter().flat_map(|secret| secret.lines()).map(str::trim);
        let lines = Words::longest_first(lines.filter(|line| line.len() >= MIN_LINE));
        Self { secrets: Words::longest_first(secrets.into_iter()), lines, mark }
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.secrets.all.len()
    }

    /// What the words for a model begin with.
    pub fn mark(&self) -> &str {
        &self.mark
    }

    /// A text with a word in the place of each secret.
    pub fn hide(&self, text: &str) -> String {
        replaced(text, &self.secrets, |number| self.word(number)).0
    }

    /// A text with the secrets in the places of their words; `None` when a word is not as it was.
    pub fn restore(&self, text: &str) -> Option<String> {
        let words = Words::of((0..self.count()).map(|number| self.word(number)).collect());
        let (restored, count) = replaced(text, &words, |number| self.secrets.all[number].clone());
        let begun = text.to_ascii_lowercase().matches(&self.mark.to_ascii_lowercase()).count();
        (words.all.is_empty() || begun == count).then_some(restored)
    }

    /// A text that shows no secret, and no line of a longer one.
    pub fn redact<'t>(&self, text: &'t str) -> Cow<'t, str> {
        if self.secrets.all.is_empty() {
            return Cow::Borrowed(text);
        }
        Cow::Owned(replaced(text, &self.lines, |_| SHOWN.to_owned()).0)
    }

    fn word(&self, number: usize) -> String {
        format!("{}{}_", self.mark, number + 1)
    }
}

/// What words for a model begin with of which the text has none: the usual, or one with a number that is free. Short, whatever the
/// text is.
fn mark_for(text: &str) -> String {
    let lower = text.to_ascii_lowercase();
    if !lower.contains(&MARK.to_ascii_lowercase()) {
        return MARK.to_owned();
    }
    let number = |(at, begin): (usize, &str)| {
        let rest = &lower[at + begin.len()..];
        let digits = &rest[..rest.find(|c: char| !c.is_ascii_digit())?];
        if rest[digits.len()..].starts_with("_secret_") { digits.parse::<usize>().ok() } else { None }
    };
    let taken: HashSet<usize> = lower.match_indices("masked_").filter_map(number).collect();
    // Of one more than are taken one is free.
    let free = (2..taken.len() + 3).find(|number| !taken.contains(number)).unwrap_or_default();
    format!("MASKED_{free}_SECRET_")
}

/// A text with other words in the places of some, in one pass, and how many places there were.
fn replaced(text: &str, words: &Words, with: impl Fn(usize) -> String) -> (String, usize) {
    let mut out = String::with_capacity(text.len());
    let (mut rest, mut count) = (text, 0);
    while let Some(c) = rest.chars().next() {
        if let Some(number) = words.at(rest) {
            out.push_str(&with(number));
            rest = &rest[words.all[number].len()..];
            count += 1;
        } else {
            out.push(c);
            rest = &rest[c.len_utf8()..];
        }
    }
    (out, count)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn given_files_with_secrets_when_they_are_hidden_then_none_is_in_the_text_and_each_comes_back_as_it_was() {
        let token = format!("ghp_{}", "aB3".repeat(12));
        let body = format!("{}\n{}\n{}", "MIIE".repeat(16), "q8Zx".repeat(16), "9+/A".repeat(4));
        for (path, text, secrets) in [
            (
                "a.py",
                format!("connect(user='me', password='hunter2hunter2', api_key=\"{token}\")\n"),
                vec!["hunter2hunter2", token.as_str()],
            ),
            ("a.py", format!("A = '{token}'\nB = '{token}' # MASKED_SECRET_1_\n"), vec![token.as_str()]),
            (
                ".env",
                "export DB_PASSWORD=hunter2hunter2\nURL=db://me:hunter2hunter2@h\n".to_owned(),
                vec!["hunter2hunter2"],
            ),
            (
                "k.pem",
                format!("-----BEGIN RSA PRIVATE KEY-----\n{body}\n-----END RSA PRIVATE KEY-----\n"),
                vec![body.as_str()],
            ),
            (
                "a.py",
                format!("K = '-----BEGIN PRIVATE KEY-----\\n{}\\n-----END PRIVATE KEY-----'\n", "MIIE".repeat(16)),
                vec!["MIIEMIIE"],
            ),
            (
                "a.py",
                format!(
                    "K = ('-----BEGIN PRIVATE KEY-----\\n'\n  '{}\\n'\n  '-----END PRIVATE KEY-----')\n",
                    "MIIE".repeat(16)
                ),
                vec!["MIIEMIIE"],
            ),
            (
                "a.json",
                "{\"a\":1,\"secret\":\"hunter2hunter2\",\"passwd\":\"hunter2hunter23\"}".to_owned(),
                vec!["hunter2"],
            ),
        ] {
            let masks = Masks::of(path, &text);
            let hidden = masks.hide(&text);
            assert!(masks.count() > 0 && hidden.contains(masks.mark()), "{hidden}");
            assert!(secrets.iter().all(|secret| !hidden.contains(*secret)), "{hidden}");
            assert_eq!(masks.restore(&hidden).as_deref(), Some(text.as_str()));
            let shown = masks.redact(&text);
            assert!(shown.contains(SHOWN) && secrets.iter().all(|secret| !shown.contains(*secret)), "{shown}");
        }
    }

    #[test]
    fn given_an_answer_that_changed_a_word_when_secrets_are_put_back_then_it_is_refused_and_one_that_left_it_out_is_not()
     {
        let masks = Masks::of("a.py", "password = 'hunter2hunter2'\n");
        assert_eq!(masks.restore("password = read()\n").as_deref(), Some("password = read()\n"));
        for answer in ["MASKED_SECRET_1", "MASKED_SECRET_2_", "masked_secret_1_", "MASKED_SECRET_1_ and MASKED_SECRET_"]
        {
            assert_eq!(masks.restore(answer), None, "{answer}");
        }
        let none = Masks::of("a.py", "x = 1\n");
        assert_eq!(none.restore("MASKED_SECRET_1_").as_deref(), Some("MASKED_SECRET_1_"), "nothing was masked");
        assert_eq!((none.count(), none.redact("x = 1")), (0, Cow::Borrowed("x = 1")));
    }

    #[test]
    fn given_a_file_that_has_words_like_ours_when_it_is_masked_then_ours_are_others_short_and_found_at_once() {
        let secret = "password = 'hunter2hunter2'\n";
        let run = "X".repeat(1 << 20);
        for (text, mark) in [
            (String::new(), "MASKED_SECRET_"),
            ("# masked_secret_1_\n".to_owned(), "MASKED_2_SECRET_"),
            (format!("# {run}MASKED_SECRET_\n"), "MASKED_2_SECRET_"),
            ("MASKED_SECRET_ masked_2_secret_ MASKED_3_Secret_ MASKED_5_SECRET_\n".to_owned(), "MASKED_4_SECRET_"),
            (
                "MASKED_SECRET_ MASKED_2 MASKED_2_ MASKED_99999999999999999999999_SECRET_\n".to_owned(),
                "MASKED_2_SECRET_",
            ),
        ] {
            let text = text + secret;
            let masks = Masks::of("a.py", &text);
            assert_eq!(masks.mark(), mark);
            let hidden = masks.hide(&text);
            assert!(!hidden.contains("hunter2") && hidden.ends_with(&format!("'{mark}1_'\n")));
            assert!(masks.restore(&hidden) == Some(text), "{mark}");
        }
    }

    #[test]
    fn given_words_of_a_key_without_one_when_a_file_is_read_then_code_is_not_taken_for_a_secret() {
        let text = "if key.startswith('-----BEGIN PRIVATE KEY-----'):\n    return load_private_key_of(key)\nprint('-----END PRIVATE KEY-----')\n";
        assert_eq!(Masks::of("a.py", text).count(), 0);
    }

    #[test]
    fn given_words_that_begin_alike_when_a_text_is_looked_through_then_the_longest_of_those_that_stand_there_counts() {
        let words = Words::longest_first(["secret", "password1", "password12", "pass", "password", "é€é€"].into_iter());
        let put = |number: usize| format!("<{}>", words.all[number]);
        for (text, expected) in [
            ("password123", "<password12>3"),
            ("passwords pas pass", "<password>s pas <pass>"),
            ("secre secret", "secre <secret>"),
            ("é€é€é", "<é€é€>é"),
            ("passworda password1a password0 passwora", "<password>a <password1>a <password>0 <pass>wora"),
            ("", ""),
        ] {
            assert_eq!(replaced(text, &words, put).0, expected, "{text}");
        }
    }

    #[test]
    fn given_a_file_with_very_many_secrets_when_many_texts_are_redacted_then_each_is_compared_with_few_of_them() {
        for head in ["", "all-of-them-begin-so-"] {
            let secret = |number: usize| format!("{head}{:08x}", number.wrapping_mul(0x9e37_79b1) & 0xffff_ffff);
            let file: String = (0..20_000).map(|one| format!("password = '{}'\n", secret(one))).collect();
            let masks = Masks::of("a.py", &file);
            assert_eq!(masks.count(), 20_000);
            for one in 0..4_000 {
                let told = format!("a name is imported and nothing in the file uses it: '{}'", secret(one));
                assert_eq!(masks.redact(&told), told.replace(&secret(one), SHOWN));
            }
            let words = (0..2_000).map(|number| masks.word(number)).collect::<String>();
            assert_eq!(masks.restore(&words).map(|text| text.len()), Some(2_000 * secret(0).len()));
        }
    }

    #[test]
    fn given_what_a_program_said_when_it_is_redacted_then_secrets_of_every_file_and_line_are_out() {
        let key = format!(
            "-----BEGIN PRIVATE KEY-----\n{}\n{}\n-----END PRIVATE KEY-----\n",
            "MIIE".repeat(16),
            "q8Zx".repeat(16)
        );
        let files = Files::from([
            ("a.env".to_owned(), "TOKEN_SECRET=hunter2hunter2\n".into()),
            ("k.pem".to_owned(), key.into()),
        ]);
        let said = format!("E  'hunter2hunter2' != {}\n", "q8Zx".repeat(16));
        assert_eq!(Masks::of_all(&files).redact(&said), format!("E  '{SHOWN}' != {SHOWN}\n"));
    }
}
