//! The model's own chat template, rendered as `transformers` does it.

use std::io::Write;

use minijinja::syntax::SyntaxConfig;
use minijinja::value::Serde;
use minijinja::{Environment, Error, ErrorKind, context};
use serde::Serialize;

use crate::dataset::{Speaker, Turn};

/// The format that is used for models that bring none; the local runtime does the same.
const CHATML: &str = "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}";

/// Steps of a template: far more than a real one takes, and a bound on a hostile one.
const FUEL: u64 = 10_000_000;
/// How many times the text of the messages a template may write.
const GROWTH: usize = 4;
/// Bytes that it may write beside that.
const MOST_BESIDE: usize = 1 << 20;

#[derive(Debug, Clone)]
pub(crate) struct ChatTemplate {
    source: String,
    bos: String,
    eos: String,
}

#[derive(Serialize)]
struct Message<'t> {
    role: &'static str,
    content: &'t str,
}

impl ChatTemplate {
    pub(crate) fn new(source: Option<String>, bos: String, eos: String) -> Self {
        Self { source: source.unwrap_or_else(|| CHATML.to_owned()), bos, eos }
    }

    pub(crate) fn eos(&self) -> &str {
        &self.eos
    }

    /// The text of a conversation; with `open`, up to where the assistant begins to write.
    pub(crate) fn render(&self, turns: &[Turn], open: bool) -> Result<String, String> {
        match self.render_once(turns, open) {
            // Some templates refuse a system message; its text then opens the first message of the user.
            Err(error) if error.kind() == ErrorKind::InvalidOperation => match merged(turns) {
                Some(turns) => self.render_once(&turns, open),
                None => Err(error),
            },
            rendered => rendered,
        }
        .map_err(|error| format!("the chat template fails: {error:#}"))
    }

    fn render_once(&self, turns: &[Turn], open: bool) -> Result<String, Error> {
        let mut environment = Environment::new();
        environment.set_syntax(SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build()?);
        environment.set_unknown_method_callback(minijinja_contrib::pycompat::unknown_method_callback);
        environment.set_fuel(Some(FUEL));
        environment.add_function("raise_exception", |message: String| -> Result<String, Error> {
            Err(Error::new(ErrorKind::InvalidOperation, message))
        });
        let messages: Vec<Message<'_>> =
            turns.iter().map(|turn| Message { role: turn.role.as_str(), content: &turn.content }).collect();
        let context = context! {
            messages => Serde(&messages),
            add_generation_prompt => open,
            bos_token => self.bos.as_str(),
            eos_token => self.eos.as_str(),
        };
        let said: usize = turns.iter().map(|turn| turn.content.len()).sum();
        let mut written = Bounded { bytes: Vec::new(), most: GROWTH * said + MOST_BESIDE, is_over: false };
        let rendered = environment.template_from_str(&self.source)?.render_captured_to(context, &mut written).map(drop);
        if written.is_over {
            return Err(Error::new(ErrorKind::WriteFailure, format!("it writes more than {} bytes", written.most)));
        }
        rendered?;
        String::from_utf8(written.bytes).map_err(|error| Error::new(ErrorKind::WriteFailure, error.to_string()))
    }
}

/// What a template writes, up to a limit: it may go round and round within its steps.
struct Bounded {
    bytes: Vec<u8>,
    most: usize,
    is_over: bool,
}

impl Write for Bounded {
    fn write(&mut self, part: &[u8]) -> std::io::Result<usize> {
        if self.bytes.len() + part.len() > self.most {
            self.is_over = true;
            return Err(std::io::Error::other("it writes too much"));
        }
        self.bytes.extend_from_slice(part);
        Ok(part.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

fn merged(turns: &[Turn]) -> Option<Vec<Turn>> {
    let (system, rest) = turns.split_first().filter(|(first, _)| first.role == Speaker::System)?;
    let mut rest = rest.to_vec();
    let user = rest.first_mut().filter(|first| first.role == Speaker::User)?;
    user.content = format!("{}\n\n{}", system.content, user.content);
    Some(rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn given_a_template_that_writes_without_end_then_it_is_stopped_and_told() {
        let source =
            "{% for a in range(9000) %}{% for b in range(900) %}{{ messages[0]['content'] }}{% endfor %}{% endfor %}";
        let template = ChatTemplate::new(Some(source.to_owned()), String::new(), String::new());
        let turn = Turn { role: Speaker::User, content: "x".repeat(100_000) };
        let error = template.render(&[turn], true).unwrap_err();
        assert!(error.contains("writes more than 1448576 bytes"), "{error}");
    }
}
