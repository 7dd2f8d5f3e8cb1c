//! What a hub tells of the contents of a file, and whether a file has them.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use reqwest::header::HeaderMap;
use sha1::Sha1;
use sha2::{Digest, Sha256};

/// What is told of a file before it is fetched.
#[derive(Debug, Clone, Default)]
pub(super) struct Announced {
    pub(super) hash: Option<FileHash>,
    /// Its bytes.
    pub(super) size: Option<u64>,
}

/// The size in the headers of an answer to HEAD: of the linked file, or where the answer `is_the_file` its own length. Nothing is no size: there is no
/// model file of no bytes, and servers that know none say so.
pub(super) fn announced_size(headers: &HeaderMap, is_the_file: bool) -> Option<u64> {
    let number = |name: &str| headers.get(name)?.to_str().ok()?.parse().ok();
    let own = || if is_the_file { number("content-length") } else { None };
    number("x-linked-size").or_else(own).filter(|size| *size > 0)
}

/// A hash of a file's contents, in lower case.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum FileHash {
    /// Of the large files, which lie in a store beside the repository.
    Sha256(String),
    /// Of the others: git's, over the length and the contents. Mirrors have the SHA-1 of the contents alone in its place.
    Git(String),
}

impl FileHash {
    /// What the headers of an answer tell. A tag of 64 digits that is not the linked file's is some store's own.
    pub(super) fn announced(headers: &HeaderMap) -> Option<Self> {
        let tag = |name: &str| digits(headers.get(name)?.to_str().ok()?);
        match (tag("x-linked-etag"), tag("etag")) {
            (Some(linked), _) if linked.len() == 64 => Some(FileHash::Sha256(linked)),
            (Some(hash), _) | (None, Some(hash)) if hash.len() == 40 => Some(FileHash::Git(hash)),
            _ => None,
        }
    }

    /// None where the file has this hash; else what it has.
    pub(super) fn other_than(&self, path: &Path) -> io::Result<Option<String>> {
        match self {
            FileHash::Sha256(wanted) => {
                let mut digest = Sha256::new();
                read(path, |block| digest.update(block))?;
                let actual = hex(&digest.finalize());
                Ok((actual != *wanted).then(|| format!("sha256 {actual} instead of {wanted}")))
            }
            FileHash::Git(wanted) => {
                let (mut git, mut plain) = (Sha1::new(), Sha1::new());
                git.update(format!("blob {}\0", std::fs::metadata(path)?.len()));
                read(path, |block| {
                    git.update(block);
                    plain.update(block);
                })?;
                let actual = hex(&git.finalize());
                let has = actual == *wanted || hex(&plain.finalize()) == *wanted;
                Ok((!has).then(|| format!("git hash {actual} instead of {wanted}")))
            }
        }
    }
}

/// The digits of a tag that may be a hash.
fn digits(tag: &str) -> Option<String> {
    let tag = tag.trim_start_matches("W/").trim_matches('"');
    let is_hash = matches!(tag.len(), 40 | 64) && tag.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_hash.then(|| tag.to_ascii_lowercase())
}

fn read(path: &Path, mut take: impl FnMut(&[u8])) -> io::Result<()> {
    let mut file = File::open(path)?;
    let mut block = vec![0; 1 << 20];
    loop {
        match file.read(&mut block)? {
            0 => return Ok(()),
            read => take(&block[..read]),
        }
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use reqwest::header::{HeaderName, HeaderValue};

    use super::*;

    #[test]
    fn given_entity_tags_when_they_are_read_then_only_hashes_of_the_contents_count() {
        let of = |tags: &[(&'static str, &str)]| {
            let header = |&(name, tag): &(&'static str, &str)| {
                (HeaderName::from_static(name), HeaderValue::from_str(tag).unwrap())
            };
            FileHash::announced(&tags.iter().map(header).collect())
        };
        let (sha, git) = ("a".repeat(64), "b".repeat(40));
        assert_eq!(of(&[("x-linked-etag", &format!("\"{sha}\""))]), Some(FileHash::Sha256(sha.clone())));
        assert_eq!(of(&[("etag", &format!("W/\"{git}\""))]), Some(FileHash::Git(git.clone())));
        let both = of(&[("x-linked-etag", &sha), ("etag", &git)]);
        assert_eq!(both, Some(FileHash::Sha256(sha.clone())), "the linked file is what comes");
        assert_eq!(of(&[("etag", &sha)]), None, "a store's own");
        assert_eq!(of(&[("etag", "\"d41d8cd98f00b204e9800998ecf8427e\"")]), None);
    }

    #[test]
    fn given_answers_to_head_when_the_size_is_read_then_that_of_a_redirect_itself_does_not_count() {
        let mut headers = HeaderMap::new();
        headers.insert("content-length", HeaderValue::from_static("12"));
        assert_eq!((announced_size(&headers, true), announced_size(&headers, false)), (Some(12), None));
        headers.insert("x-linked-size", HeaderValue::from_static("4000"));
        assert_eq!((announced_size(&headers, true), announced_size(&headers, false)), (Some(4000), Some(4000)));
        headers.insert("x-linked-size", HeaderValue::from_static("0"));
        assert_eq!(announced_size(&headers, false), None);
        assert_eq!(announced_size(&HeaderMap::new(), true), None);
    }

    #[test]
    fn given_a_file_when_its_hash_is_checked_then_gits_and_the_plain_one_hold_and_another_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("config.json");
        std::fs::write(&file, "{}").unwrap();
        // As `git hash-object` and `sha1sum` say.
        let (git, plain) = ("9e26dfeeb6e641a33dae4961196235bdb965b21b", "bf21a9e8fbc5a3846fb05b4fa0859e0917b2202f");
        for hash in [git, plain] {
            assert_eq!(FileHash::Git(hash.to_owned()).other_than(&file).unwrap(), None);
        }
        let told = FileHash::Git("c".repeat(40)).other_than(&file).unwrap().unwrap();
        assert!(told.contains(git), "{told}");
        let told = FileHash::Sha256("c".repeat(64)).other_than(&file).unwrap().unwrap();
        assert!(told.starts_with("sha256 44136fa355b3678a"), "{told}");
    }
}
