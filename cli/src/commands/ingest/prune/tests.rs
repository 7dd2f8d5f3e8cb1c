use serde_json::{Value, json};

use super::*;
use crate::client::testing::answering;

/// The request that has read the source, and one before it.
const NOW: &str = "ing_01h455vb4pex5vsknk084sn02q";
const BEFORE: &str = "ing_01h455vb4pex5vsknk084sn02r";
const BEGAN: i64 = 1_000;

fn globs(include: &[&str]) -> Globs {
    let include: Vec<String> = include.iter().map(|glob| (*glob).to_owned()).collect();
    Globs::new(&include, &[]).unwrap()
}

fn site() -> Listing {
    Listing::Site { globs: Globs::all(), most: 3, is_sitemap: false }
}

fn archive(include: &[&str]) -> Listing {
    Listing::Archive { path: "/a/z.zip".into(), globs: globs(include), limits: Limits::default() }
}

fn view(change: Value) -> IngestView {
    let mut view = json!({
        "ingest_id": NOW, "status": "done", "namespace": "default", "collection": "c", "source": "https://h/", "documents": 2,
        "skipped": 0, "queued": 0, "chunked": 0, "embedded": 0, "indexed": 2, "unchanged": 0, "failed": 0, "chunks": 2,
        "failures": [], "created_at": "1970-01-01T00:00:05Z", "finished_at": null,
    });
    view.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
    serde_json::from_value(view).unwrap()
}

fn document(source: &str, ingest_id: &str, updated_ms: i64, status: &str) -> Value {
    let at = Timestamp(updated_ms);
    json!({
        "document_id": "doc_01h455vb4pex5vsknk084sn02q", "namespace": "default", "collection": "c", "source": source, "status": status,
        "ingest_id": ingest_id, "version": "v", "chunks": 1, "indexed_version": "v", "created_at": at, "updated_at": at,
    })
}

async fn found(listing: &Listing, documents: Vec<Value>) -> Vec<String> {
    let other = "ing_01h455vb4pex5vsknk084sn02s";
    let client = answering(&[
        ("/documents", vec![(200, json!({ "items": documents, "next_cursor": null }))]),
        (format!("/ingest/{BEFORE}").as_str(), vec![(200, json!(view(json!({ "ingest_id": BEFORE }))))]),
        (
            format!("/ingest/{other}").as_str(),
            vec![(200, json!(view(json!({ "ingest_id": other, "source": "https://h/x" }))))],
        ),
    ]);
    let gone = gone(&client, listing, &view(json!({})), BEGAN).await.unwrap();
    gone.into_iter().map(|document| document.source).collect()
}

#[test]
fn given_sources_then_only_files_below_the_folder_that_are_not_there_are_gone() {
    let there = ["/docs", "/docs/a.txt", "/docs/old.zip", "/docs/repo", "/docs-2"];
    let table = [
        ("/docs/a.txt", false),
        ("/docs/b.txt", true),
        ("/docs/sub/c.txt", true),
        ("/docs", false),
        ("/docs-2/b.txt", false),
        ("/elsewhere/b.txt", false),
        ("b.txt", false),
        ("https://example.org/docs/b.txt", false),
        ("/docs/old.zip!/member.txt", false),
        ("/docs/gone.zip!/member.txt", true),
        ("/docs/repo#src/main.rs", false),
        ("/docs/a#1.txt", true),
    ];
    for (source, gone) in table {
        assert_eq!(is_gone("/docs", source, |path| there.contains(&path)), gone, "{source}");
    }
}

#[test]
fn given_a_file_when_it_goes_then_it_is_not_there() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("a.txt").display().to_string();
    assert!(!is_there(&file) && !is_there(&format!("{file}/below")));
    std::fs::write(&file, "a").unwrap();
    assert!(is_there(&file) && !is_there(&format!("{file}/below")));
}

#[tokio::test]
async fn given_an_archive_or_a_repository_that_was_read_then_what_of_it_the_request_left_alone_is_gone_and_nothing_else()
 {
    let documents = vec![
        document("/a/z.zip!/gone.txt", BEFORE, 10, "indexed"),
        document("/a/z.zip!/sub/gone.md", BEFORE, 10, "failed"),
        document("/a/z.zip!/kept.txt", NOW, 20, "unchanged"),
        document("/a/z.zip!/of-somebody-else.txt", BEFORE, BEGAN, "indexed"),
        document("/a/z.zip!/going.txt", BEFORE, 10, "deleting"),
        document("/a/z.zip2!/other.txt", BEFORE, 10, "indexed"),
        document("/a/z.zip", BEFORE, 10, "indexed"),
        document("https://h/r.git#gone.txt", BEFORE, 10, "indexed"),
        document("https://h/r.git#kept.txt", NOW, 20, "indexed"),
        document("https://h/r.gitx#other.txt", BEFORE, 10, "indexed"),
    ];
    assert_eq!(found(&archive(&[]), documents.clone()).await, ["/a/z.zip!/gone.txt", "/a/z.zip!/sub/gone.md"]);
    // What the globs leave out was not looked for.
    assert_eq!(found(&archive(&["*.md"]), documents.clone()).await, ["/a/z.zip!/sub/gone.md"]);
    let repository = Listing::Repository { address: "https://h/r.git".into(), globs: Globs::all() };
    assert_eq!(found(&repository, documents).await, ["https://h/r.git#gone.txt"]);
}

#[tokio::test]
async fn given_a_file_with_the_name_of_a_repository_in_its_own_when_that_is_pruned_then_the_file_stays() {
    let folder = tempfile::tempdir().unwrap();
    let address = folder.path().join("repo").display().to_string();
    let (file, member) = (format!("{address}#notes.txt"), format!("{address}#gone.txt"));
    std::fs::write(&file, "a").unwrap();
    let documents = [&file, &member].map(|source| document(source, BEFORE, 10, "indexed")).to_vec();
    assert_eq!(found(&Listing::Repository { address, globs: Globs::all() }, documents).await, [member]);
}

#[tokio::test]
async fn given_a_site_that_was_read_then_pages_that_the_same_crawl_brought_before_are_gone_and_no_others() {
    let documents = vec![
        document("https://h/gone", BEFORE, 10, "indexed"),
        document("https://h/kept", NOW, 20, "indexed"),
        document("https://h/named-alone", "ing_01h455vb4pex5vsknk084sn02s", 10, "indexed"),
        document("/a/file.html", BEFORE, 10, "indexed"),
    ];
    assert_eq!(found(&site(), documents.clone()).await, ["https://h/gone"]);
    let narrow = Listing::Site { globs: globs(&["docs/**"]), most: 3, is_sitemap: false };
    assert!(found(&narrow, documents).await.is_empty());
}

#[tokio::test]
async fn given_a_site_that_may_not_have_been_read_to_its_end_when_it_is_pruned_then_nothing_is_removed_and_that_is_told()
 {
    let sitemap = || Listing::Site { globs: Globs::all(), most: 3, is_sitemap: true };
    for (what, listing, reads_here, change, whole) in [
        ("all of it", site(), true, json!({ "documents": 3 }), true),
        ("a page failed", site(), true, json!({ "failed": 1 }), false),
        ("cut by the limit", site(), true, json!({ "documents": 3, "skipped": 1 }), false),
        ("a page under two addresses", site(), true, json!({ "documents": 2, "skipped": 1 }), true),
        ("under another's limit", site(), false, json!({ "documents": 2, "skipped": 1 }), false),
        ("of a sitemap", sitemap(), true, json!({ "documents": 2, "skipped": 1 }), false),
        ("an archive with others left out", archive(&[]), false, json!({ "skipped": 9, "failed": 1 }), true),
    ] {
        let client = answering(&[("/documents", vec![(200, json!({ "items": [], "next_cursor": null }))])]);
        let pruned = run(&client, &listing, &view(change), BEGAN, reads_here).await;
        assert_eq!(pruned.is_ok(), whole, "{what}: {pruned:?}");
        if let Err(error) = pruned {
            assert!(error.message.starts_with("nothing was removed") && error.hint.is_some(), "{what}: {error:?}");
        }
    }
}

#[tokio::test]
async fn given_a_source_with_nothing_to_read_when_it_is_pruned_then_it_is_emptied_only_where_that_is_known() {
    let folder = tempfile::tempdir().unwrap();
    let zip = |name: &str, files: &[&str]| {
        let path = folder.path().canonicalize().unwrap().join(name);
        let packed = files.iter().map(|name| sources::PackedFile { name, bytes: b"words\n", is_executable: false });
        std::fs::write(&path, sources::pack_members(name, packed).unwrap()).unwrap();
        Listing::Archive { path: path.display().to_string(), globs: Globs::all(), limits: Limits::default() }
    };
    let of_folder = |is_empty| Listing::Folder { path: "/docs".into(), is_empty };
    let repository = Listing::Repository { address: "/r".into(), globs: Globs::all() };
    for (what, listing, emptied) in [
        ("an empty folder", of_folder(true), true),
        ("a folder that only the server finds empty", of_folder(false), false),
        ("a repository", repository, true),
        ("a site", site(), false),
        ("an archive of nothing that is read", zip("a.zip", &["a.bin"]), true),
        ("an archive that only the server finds empty", zip("b.zip", &["a.bin", "b.txt"]), false),
    ] {
        let client = answering(&[("/documents", vec![(200, json!({ "items": [], "next_cursor": null }))])]);
        for (code, expected) in [(NOTHING, emptied), ("unreadable", false)] {
            let failed = view(json!({ "status": "failed", "error": { "code": code, "message": "m" } }));
            let pruned = run(&client, &listing, &failed, BEGAN, true).await.unwrap();
            assert_eq!(pruned, Pruned { documents: 0, is_emptied: expected }, "{what} {code}");
        }
    }
}
