//! What is counted while a project is imported and analyzed.

use riverrun_projects::copy::Files;
use riverrun_projects::progress::Progress;
use riverrun_projects::{ProjectSettings, analyzers, import};

#[tokio::test]
async fn given_a_folder_when_it_is_imported_then_every_file_is_counted_once() {
    let folder = tempfile::tempdir().unwrap();
    for number in 0..5 {
        std::fs::write(folder.path().join(format!("{number}.py")), "x = 1\n").unwrap();
    }
    let progress = Progress::default();
    let read = import::read(&folder.path().display().to_string(), None, &progress).await.unwrap();
    assert_eq!((read.files.len(), progress.seen()), (5, (5, 5)));
}

#[tokio::test]
async fn given_files_when_they_are_analyzed_then_each_analyzer_is_counted_whether_it_runs_or_not() {
    let files: Files = [("a.py", "import os\n"), ("b.js", "let a = 1;\n"), ("c.go", "package c\n")]
        .into_iter()
        .map(|(name, content)| (name.to_owned(), bytes::Bytes::from(content)))
        .collect();
    let progress = Progress::default();
    let analyzed = analyzers::analyze(files, None, &ProjectSettings::default(), &progress).await;
    let all = analyzed.tools.len() as u64;
    assert!(all >= 10, "{:?}", analyzed.tools);
    assert_eq!(progress.seen(), (all, all));
}
