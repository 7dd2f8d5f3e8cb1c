//! JSON as Python's `json.dumps` writes it, which is what the authors of chat templates know and what models were trained on.

use std::fmt::Write;

use minijinja::value::{Kwargs, Value as JinjaValue};
use minijinja::{Error, ErrorKind};
use serde_json::Value;

/// Spaces of a level at most.
const MAX_INDENT: usize = 16;

/// The arguments of `json.dumps`, as the filter `tojson` of `transformers` has them.
#[derive(Debug, Clone)]
struct Layout {
    /// Spaces of a level, each value on a line of its own; none is one line.
    indent: Option<usize>,
    between_items: String,
    behind_keys: String,
    ascii: bool,
    sorted: bool,
}

/// A value on one line, with `", "` and `": "`.
pub(super) fn python_json(value: &Value) -> String {
    let (between_items, behind_keys) = (", ".to_owned(), ": ".to_owned());
    dumps(value, &Layout { indent: None, between_items, behind_keys, ascii: false, sorted: false })
}

/// The filter `tojson`: nothing is escaped for HTML.
pub(super) fn to_json(value: JinjaValue, options: Kwargs) -> Result<String, Error> {
    let indent: Option<usize> = options.get("indent")?;
    let separators: Option<Vec<String>> = options.get("separators")?;
    let ascii: Option<bool> = options.get("ensure_ascii")?;
    let sorted: Option<bool> = options.get("sort_keys")?;
    options.assert_all_used()?;
    let (between_items, behind_keys) = match separators.as_deref() {
        None if indent.is_some() => (",".to_owned(), ": ".to_owned()),
        None => (", ".to_owned(), ": ".to_owned()),
        Some([items, keys]) => (items.clone(), keys.clone()),
        Some(other) => {
            let detail = format!("tojson takes two separators, as in (',', ':'), not {}", other.len());
            return Err(Error::new(ErrorKind::InvalidOperation, detail));
        }
    };
    let value = serde_json::to_value(&value)
        .map_err(|error| Error::new(ErrorKind::BadSerialization, "cannot write JSON").with_source(error))?;
    let indent = indent.map(|width| width.min(MAX_INDENT));
    let layout =
        Layout { indent, between_items, behind_keys, ascii: ascii == Some(true), sorted: sorted == Some(true) };
    Ok(dumps(&value, &layout))
}

fn dumps(value: &Value, layout: &Layout) -> String {
    let mut out = String::new();
    layout.write(&mut out, value, 0);
    out
}

impl Layout {
    fn write(&self, out: &mut String, value: &Value, depth: usize) {
        match value {
            Value::Array(items) if !items.is_empty() => {
                out.push('[');
                for (index, item) in items.iter().enumerate() {
                    self.next(out, index, depth + 1);
                    self.write(out, item, depth + 1);
                }
                self.line(out, depth);
                out.push(']');
            }
            Value::Object(map) if !map.is_empty() => {
                let mut entries: Vec<(&String, &Value)> = map.iter().collect();
                if self.sorted {
                    entries.sort_by_key(|(key, _)| *key);
                }
                out.push('{');
                for (index, (key, item)) in entries.into_iter().enumerate() {
                    self.next(out, index, depth + 1);
                    self.text(out, key);
                    out.push_str(&self.behind_keys);
                    self.write(out, item, depth + 1);
                }
                self.line(out, depth);
                out.push('}');
            }
            Value::String(text) => self.text(out, text),
            other => out.push_str(&other.to_string()),
        }
    }

    /// What stands before an item.
    fn next(&self, out: &mut String, index: usize, depth: usize) {
        if index > 0 {
            out.push_str(&self.between_items);
        }
        self.line(out, depth);
    }

    fn line(&self, out: &mut String, depth: usize) {
        if let Some(width) = self.indent {
            out.push('\n');
            out.extend(std::iter::repeat_n(' ', width * depth));
        }
    }

    fn text(&self, out: &mut String, text: &str) {
        let written = Value::from(text).to_string();
        if !self.ascii {
            out.push_str(&written);
            return;
        }
        for letter in written.chars() {
            if letter.is_ascii() {
                out.push(letter);
            } else {
                for unit in letter.encode_utf16(&mut [0; 2]) {
                    // Writing to a text does not fail.
                    let _ = write!(out, "\\u{unit:04x}");
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use minijinja::{Environment, context};
    use serde_json::json;

    use super::*;

    fn written(filter: &str) -> Result<String, Error> {
        let mut environment = Environment::new();
        environment.add_filter("tojson", to_json);
        let value = json!({"b": [1, "ä🦀<\n"], "a": {}, "c": []});
        environment
            .render_str(&format!("{{{{ value | {filter} }}}}"), context! { value => minijinja::value::Serde(&value) })
    }

    #[test]
    fn given_the_arguments_of_transformers_filter_when_json_is_written_then_it_is_as_python_writes_it() {
        for (filter, expected) in [
            ("tojson", r#"{"b": [1, "ä🦀<\n"], "a": {}, "c": []}"#),
            ("tojson(indent=none)", r#"{"b": [1, "ä🦀<\n"], "a": {}, "c": []}"#),
            ("tojson(separators=(',', ':'))", r#"{"b":[1,"ä🦀<\n"],"a":{},"c":[]}"#),
            ("tojson(separators=[', ', ':'], sort_keys=true)", r#"{"a":{}, "b":[1, "ä🦀<\n"], "c":[]}"#),
            ("tojson(ensure_ascii=true)", r#"{"b": [1, "\u00e4\ud83e\udd80<\n"], "a": {}, "c": []}"#),
            ("tojson(ensure_ascii=false, sort_keys=false)", r#"{"b": [1, "ä🦀<\n"], "a": {}, "c": []}"#),
            ("tojson(indent=2)", "{\n  \"b\": [\n    1,\n    \"ä🦀<\\n\"\n  ],\n  \"a\": {},\n  \"c\": []\n}"),
            (
                "tojson(indent=1, separators=(', ', '='), sort_keys=true)",
                "{\n \"a\"={}, \n \"b\"=[\n  1, \n  \"ä🦀<\\n\"\n ], \n \"c\"=[]\n}",
            ),
        ] {
            assert_eq!(written(filter).unwrap(), expected, "{filter}");
        }
    }

    #[test]
    fn given_arguments_that_python_has_not_when_json_is_written_then_they_are_refused() {
        for (filter, said) in [("tojson(separators=[','])", "two separators"), ("tojson(colour=1)", "colour")] {
            let error = written(filter).unwrap_err().to_string();
            assert!(error.contains(said), "{error}");
        }
    }
}
