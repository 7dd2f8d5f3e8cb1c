//! How far work is: on stderr, where people look, and gone when the work is done. Every command shows it in the same way.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::output::{Output, stderr_is_terminal};

/// A bar that counts `what`, of a total that may become known later. Its message stands behind the numbers.
pub fn bar(output: Output, total: Option<u64>, what: &str) -> ProgressBar {
    styled(output, total, &counting(what))
}

/// A line for work that says by itself how far it is.
pub fn line(output: Output) -> ProgressBar {
    styled(output, None, "{msg} · {elapsed}")
}

fn counting(what: &str) -> String {
    format!("[{{wide_bar}}] {{pos}}/{{len}} {what} · {{msg}} · {{elapsed}}")
}

fn styled(output: Output, total: Option<u64>, template: &str) -> ProgressBar {
    let is_visible = stderr_is_terminal() && !output.json;
    let target = if is_visible { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
    let bar = ProgressBar::with_draw_target(total, target);
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style);
    }
    bar
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn given_what_is_counted_when_a_bar_is_made_then_its_style_can_be_read_and_json_has_none() {
        for what in ["documents", "steps", "searches", "samples"] {
            assert!(ProgressStyle::with_template(&counting(what)).is_ok(), "{what}");
        }
        let output = Output { json: true };
        assert!(bar(output, Some(3), "documents").is_hidden() && line(output).is_hidden());
    }
}
