//! The tokens of the settings and those of the file, which is looked at again as it changes.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use parking_lot::Mutex;

use super::scope::Grant;
use super::token_file::TokenFile;
use super::tokens::{TokenHash, Tokens, hash};

/// A file that changed counts after this time at the latest.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// Who a request comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Bearer {
    /// No tokens are asked for: everyone may do everything.
    Anyone,
    /// The bearer of a token.
    Known(Arc<Grant>),
    /// Tokens are asked for, and none that holds was given.
    Unknown,
}

/// The tokens that hold now.
pub(crate) struct TokenStore {
    settings: Tokens,
    file: Option<PathBuf>,
    seen: Mutex<Seen>,
}

#[derive(Default)]
struct Seen {
    looked: Option<Instant>,
    stamp: Option<(SystemTime, u64)>,
    tokens: Tokens,
    /// There was a file: from then on tokens are asked for, until this process ends.
    had_file: bool,
}

impl TokenStore {
    pub(crate) fn new(settings: Tokens, file: Option<PathBuf>) -> Self {
        Self { settings, file, seen: Mutex::default() }
    }

    /// Whether tokens are asked for. With a file they are, also when its last token was revoked or the file is gone.
    pub(crate) fn is_required(&self) -> bool {
        let mut seen = self.seen.lock();
        self.look(&mut seen);
        seen.had_file || !self.settings.is_empty()
    }

    /// Who presents that token.
    pub(crate) fn bearer(&self, token: Option<&str>, now_ms: i64) -> Bearer {
        if !self.is_required() {
            return Bearer::Anyone;
        }
        let Some(token) = token else { return Bearer::Unknown };
        match self.grant_of(&hash(token), now_ms) {
            Some(grant) => Bearer::Known(grant),
            None => Bearer::Unknown,
        }
    }

    /// Whether the token of this hash is one now.
    pub(crate) fn holds(&self, token: &TokenHash, now_ms: i64) -> bool {
        self.is_required() && self.grant_of(token, now_ms).is_some()
    }

    fn grant_of(&self, token: &TokenHash, now_ms: i64) -> Option<Arc<Grant>> {
        let found = self.settings.find_hash(token);
        let found = found.or_else(|| self.seen.lock().tokens.find_hash(token));
        found.filter(|grant| grant.is_valid_at(now_ms))
    }

    /// A file that can't be read leaves the tokens that were read last.
    fn look(&self, seen: &mut Seen) {
        let Some(path) = &self.file else { return };
        if seen.looked.is_some_and(|at| at.elapsed() < LOOK_AGAIN) {
            return;
        }
        seen.looked = Some(Instant::now());
        let found = std::fs::metadata(path).and_then(|found| Ok((found.modified()?, found.len())));
        let Ok(stamp) = found else {
            if seen.had_file && seen.stamp.take().is_some() {
                tracing::warn!(file = %path.display(), "the file of tokens is gone; its tokens hold no more");
                seen.tokens = Tokens::default();
            }
            return;
        };
        if seen.stamp == Some(stamp) {
            return;
        }
        (seen.had_file, seen.stamp) = (true, Some(stamp));
        match TokenFile::read(path) {
            Ok(file) => seen.tokens = file.tokens(),
            Err(error) => {
                tracing::error!(%error, "the file of tokens can't be read; the tokens that were read last go on holding");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::token_file::FILE_NAME;
    use super::*;

    impl TokenStore {
        fn forget_when_it_looked(&self) {
            self.seen.lock().looked = None;
        }
    }

    #[test]
    fn given_neither_settings_nor_file_when_someone_comes_then_everyone_may_do_everything() {
        let folder = tempfile::tempdir().unwrap();
        let store = TokenStore::new(Tokens::default(), Some(folder.path().join(FILE_NAME)));
        assert_eq!(store.bearer(None, 0), Bearer::Anyone);
        assert_eq!(store.bearer(Some("x"), 0), Bearer::Anyone);
    }

    #[test]
    fn given_a_file_when_it_changes_then_its_tokens_come_and_go_and_it_never_opens_the_door() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(FILE_NAME);
        let store = TokenStore::new(Tokens::default(), Some(path.clone()));
        assert!(!store.is_required());
        let grant = Grant { expires_at_ms: Some(100), ..Grant::everything("ann") };
        let (_, token) = TokenFile::read(&path).unwrap().create(grant).unwrap();
        store.forget_when_it_looked();
        assert_eq!(store.bearer(None, 0), Bearer::Unknown);
        assert!(matches!(store.bearer(Some(&token), 99), Bearer::Known(_)));
        assert_eq!(store.bearer(Some(&token), 100), Bearer::Unknown, "it has run out");
        TokenFile::read(&path).unwrap().revoke("ann").unwrap();
        store.forget_when_it_looked();
        assert_eq!(store.bearer(Some(&token), 0), Bearer::Unknown);
        std::fs::remove_file(&path).unwrap();
        store.forget_when_it_looked();
        assert_eq!(store.bearer(None, 0), Bearer::Unknown, "a file that is gone opens nothing");
    }

    #[test]
    fn given_a_file_that_breaks_when_someone_comes_then_the_tokens_read_last_hold() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(FILE_NAME);
        let (_, token) = TokenFile::read(&path).unwrap().create(Grant::everything("ann")).unwrap();
        let store = TokenStore::new(Tokens::default(), Some(path.clone()));
        assert!(matches!(store.bearer(Some(&token), 0), Bearer::Known(_)));
        std::fs::write(&path, "broken").unwrap();
        store.forget_when_it_looked();
        assert!(matches!(store.bearer(Some(&token), 0), Bearer::Known(_)));
        assert_eq!(store.bearer(Some("other"), 0), Bearer::Unknown);
    }
}
