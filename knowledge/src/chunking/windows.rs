//! text-splitter looks at all of the text that is left for every chunk, so its time grows with the square of the length:
//! seconds for a megabyte without paragraphs. A window that moves along keeps it linear.

use super::MAX_CHUNKS;

/// Splits window by window. The last chunk of a window may have been cut by the window's end: the next window begins with
/// it. Stops when there are more chunks than a document may have.
pub(super) fn windowed<'t>(
    text: &'t str,
    window_bytes: usize,
    split: impl Fn(&'t str) -> Vec<(usize, &'t str)>,
) -> Vec<(usize, &'t str)> {
    let mut chunks: Vec<(usize, &'t str)> = Vec::new();
    let mut from = 0;
    while from < text.len() && chunks.len() <= MAX_CHUNKS {
        let to = text.ceil_char_boundary(text.len().min(from + window_bytes));
        let mut found: Vec<(usize, &'t str)> =
            split(&text[from..to]).into_iter().map(|(start, part)| (from + start, part)).collect();
        from = match found.last() {
            Some((start, _)) if to < text.len() && *start > from => *start,
            _ => to,
        };
        if from < to {
            found.pop();
        }
        chunks.extend(found);
    }
    chunks
}
