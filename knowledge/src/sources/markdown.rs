//! Markdown: the text stays as it is written, headings and title are read from it.

use pulldown_cmark::{Event, Options, Parser, Tag, TagEnd};

use super::{ExtractedText, MAX_HEADING_CHARS, Section, Source, SourceError, decode};
use crate::chunking::{self, Chunker};

/// CommonMark with YAML front matter.
pub(super) struct Markdown;

impl Source for Markdown {
    fn name(&self) -> &'static str {
        "markdown"
    }

    fn extensions(&self) -> &'static [&'static str] {
        &["md", "markdown", "mdown", "mkd"]
    }

    fn media_type(&self) -> &'static str {
        "text/markdown"
    }

    fn chunker(&self) -> &'static dyn Chunker {
        &chunking::MarkdownChunks
    }

    fn extract(&self, name: &str, bytes: &[u8]) -> Result<ExtractedText, SourceError> {
        let text = decode::decode(name, bytes)?;
        let outline = outline(&text);
        let first_heading =
            || outline.sections.iter().find(|section| section.level == 1).map(|section| section.heading.clone());
        let title = outline.front_matter_title.or_else(first_heading);
        let author = outline.front_matter_author;
        let text = ExtractedText { title, author, sections: outline.sections, ..ExtractedText::plain(text) };
        Ok(text.decoded_from(decode::encoding_of(bytes)))
    }
}

#[derive(Default)]
pub(super) struct Outline {
    pub(super) sections: Vec<Section>,
    front_matter_title: Option<String>,
    front_matter_author: Option<String>,
}

/// Headings as the parser sees them, so that a `#` in a code block is none.
pub(super) fn outline(text: &str) -> Outline {
    // Without the option, front matter would read as a heading.
    let options = Options::ENABLE_YAML_STYLE_METADATA_BLOCKS | Options::ENABLE_TABLES;
    let mut outline = Outline::default();
    let mut heading: Option<Section> = None;
    let mut in_front_matter = false;
    for (event, span) in Parser::new_ext(text, options).into_offset_iter() {
        match event {
            Event::Start(Tag::Heading { level, .. }) => {
                heading = Some(Section { start: span.start, level: level as u8, heading: String::new() });
            }
            Event::End(TagEnd::Heading(_)) => {
                let section = heading.take().map(|section| Section { heading: cut(&section.heading), ..section });
                outline.sections.extend(section.filter(|section| !section.heading.is_empty()));
            }
            Event::Start(Tag::MetadataBlock(_)) => in_front_matter = true,
            Event::End(TagEnd::MetadataBlock(_)) => in_front_matter = false,
            Event::Text(words) if in_front_matter => {
                outline.front_matter_title = front_matter(&words, "title:");
                outline.front_matter_author = front_matter(&words, "author:");
            }
            Event::Text(words) | Event::Code(words) => {
                if let Some(section) = &mut heading {
                    section.heading.push_str(&words);
                }
            }
            Event::SoftBreak | Event::HardBreak => {
                if let Some(section) = &mut heading {
                    section.heading.push(' ');
                }
            }
            // Everything else is markup around the text.
            _ => {}
        }
    }
    outline
}

fn front_matter(yaml: &str, key: &str) -> Option<String> {
    let value = yaml.lines().find_map(|line| line.strip_prefix(key))?.trim();
    let bare = value
        .strip_prefix('"')
        .and_then(|v| v.strip_suffix('"'))
        .or_else(|| value.strip_prefix('\'').and_then(|v| v.strip_suffix('\'')));
    Some(cut(bare.unwrap_or(value))).filter(|value| !value.is_empty())
}

fn cut(heading: &str) -> String {
    match heading.char_indices().nth(MAX_HEADING_CHARS) {
        Some((end, _)) => format!("{}…", &heading[..end]),
        None => heading.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn extract(text: &str) -> ExtractedText {
        Markdown.extract("a.md", text.as_bytes()).unwrap()
    }

    fn headings(text: &ExtractedText) -> Vec<(u8, &str)> {
        text.sections.iter().map(|section| (section.level, section.heading.as_str())).collect()
    }

    #[test]
    fn given_all_kinds_of_headings_when_extracted_then_only_real_ones_are_sections() {
        let source = "# The *Title* of `it`\n\ntext\n\n```sh\n# not a heading\n```\n\nSetext\n------\n\n### Deep ###\n\n#nospace\n\n####\n";
        let text = extract(source);
        assert_eq!(headings(&text), [(1, "The Title of it"), (2, "Setext"), (3, "Deep")]);
        assert_eq!(text.title.as_deref(), Some("The Title of it"));
        assert_eq!(text.text, source);
        for section in &text.sections {
            let first_word = section.heading.split(' ').next().unwrap();
            assert!(source[section.start..].trim_start_matches(['#', ' ']).starts_with(first_word));
        }
    }

    #[test]
    fn given_front_matter_when_extracted_then_its_title_wins_and_it_is_no_heading() {
        let text = extract("---\ntitle: \"Rivers: a study\"\nauthor: Ann\ndate: 2024-01-01\n---\n\n# Other\n\nbody\n");
        assert_eq!(text.title.as_deref(), Some("Rivers: a study"));
        assert_eq!((text.author.as_deref(), text.encoding.as_deref()), (Some("Ann"), Some("UTF-8")));
        assert_eq!(headings(&text), [(1, "Other")]);
        assert_eq!(extract("just text\n").title, None);
    }

    #[test]
    fn given_a_heading_without_end_when_extracted_then_it_is_cut() {
        let text = extract(&format!("# {}\n\nbody\n", "ü".repeat(100_000)));
        assert_eq!(text.sections[0].heading.chars().count(), MAX_HEADING_CHARS + 1);
        assert_eq!(text.title.as_ref(), Some(&text.sections[0].heading));
        assert_eq!(
            extract(&format!("---\ntitle: {}\n---\nbody\n", "x".repeat(1000))).title.unwrap().len(),
            MAX_HEADING_CHARS + "…".len()
        );
    }

    #[test]
    fn given_windows_line_endings_when_extracted_then_they_stay() {
        let text = extract("# A\r\n\r\nbody\r\n");
        assert_eq!(text.text, "# A\r\n\r\nbody\r\n");
        assert_eq!(headings(&text), [(1, "A")]);
    }
}
