//! One progress over the files of a model that are parts of one.

use parking_lot::Mutex;

use crate::progress::PullProgress;

/// Shows several files, fetched one after the other, as one.
pub(super) struct Together<'a> {
    shown: &'a dyn PullProgress,
    name: &'a str,
    /// Bytes of all files, where that is known.
    total: Option<u64>,
    at: Mutex<Position>,
}

#[derive(Debug, Default)]
struct Position {
    /// Bytes of the files that are complete.
    before: u64,
    /// Bytes of the file that comes.
    within: u64,
    started: bool,
}

impl<'a> Together<'a> {
    /// A progress that begins with `before` bytes in files that are there already.
    pub(super) fn new(shown: &'a dyn PullProgress, name: &'a str, before: u64, total: Option<u64>) -> Self {
        Together { shown, name, total, at: Mutex::new(Position { before, ..Position::default() }) }
    }

    /// All files are there.
    pub(super) fn end(&self) {
        if self.at.lock().started {
            self.shown.finish();
        }
    }
}

impl PullProgress for Together<'_> {
    fn start(&self, model: &str, _file: &str, done: u64, _total: Option<u64>) {
        let mut at = self.at.lock();
        if at.started && done >= at.within {
            self.shown.advance(done - at.within);
        } else {
            // The first file, or one that starts over.
            self.shown.start(model, self.name, at.before + done, self.total);
        }
        (at.within, at.started) = (done, true);
    }

    fn advance(&self, bytes: u64) {
        self.at.lock().within += bytes;
        self.shown.advance(bytes);
    }

    fn finish(&self) {
        let mut at = self.at.lock();
        at.before += at.within;
        at.within = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Default)]
    struct Told(Mutex<Vec<String>>);

    impl PullProgress for Told {
        fn start(&self, model: &str, file: &str, done: u64, total: Option<u64>) {
            self.0.lock().push(format!("{model} {file} {done} of {total:?}"));
        }
        fn advance(&self, bytes: u64) {
            self.0.lock().push(format!("+{bytes}"));
        }
        fn finish(&self) {
            self.0.lock().push("end".to_owned());
        }
    }

    #[test]
    fn given_several_files_when_they_come_then_one_progress_goes_on_and_only_back_where_one_starts_over() {
        let told = Told::default();
        let together = Together::new(&told, "m", 5, Some(100));
        together.start("o", "1", 10, Some(30));
        together.advance(20);
        together.finish();
        // What an earlier try left of the second one.
        together.start("o", "2", 7, None);
        together.advance(3);
        together.start("o", "2", 0, None);
        together.advance(65);
        together.finish();
        together.end();
        let expected = ["o m 15 of Some(100)", "+20", "+7", "+3", "o m 35 of Some(100)", "+65", "end"];
        assert_eq!(*told.0.lock(), expected);
    }

    #[test]
    fn given_files_that_are_all_there_when_it_ends_then_nothing_was_shown() {
        let told = Told::default();
        Together::new(&told, "m", 5, Some(5)).end();
        assert!(told.0.lock().is_empty());
    }
}
