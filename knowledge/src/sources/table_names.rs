//! Names of the tables that the documents of one request make. Pure.

use std::collections::HashMap;
use std::path::Path;

use riverrun_stores::warehouse::name_part;
use sha2::{Digest, Sha256};

/// What parts a member from the archive, repository or folder that holds it.
const SEPARATORS: [&str; 3] = ["!/", "/", "#"];

/// Bytes of a path's hash that a name ends with where nothing else tells two apart.
const HASH_BYTES: usize = 4;

/// The table of each document of a request that has several, with whether it has rows: those without have none, and take part in no
/// name. See [`table_names`].
pub fn member_tables<'s>(
    table: &str,
    root: &str,
    documents: impl IntoIterator<Item = (&'s str, bool)>,
) -> Vec<Option<String>> {
    let documents: Vec<(&str, bool)> = documents.into_iter().collect();
    let with_rows: Vec<&str> = documents.iter().filter(|(_, has_rows)| *has_rows).map(|(source, _)| *source).collect();
    let mut names = table_names(table, root, &with_rows).into_iter();
    documents.iter().map(|(_, has_rows)| if *has_rows { names.next() } else { None }).collect()
}

/// The tables of documents below `root` (a folder, archive or repository), in their order; no two are the same. Each is `table` with
/// the file's name behind it. Files whose names read alike have their folder's in between, and where those read alike, too, a hash of
/// the path at the end. A name follows from the paths alone, in whatever order they come: the same files have the same names each time.
fn table_names(table: &str, root: &str, sources: &[&str]) -> Vec<String> {
    let possible: Vec<[String; 3]> = sources.iter().map(|source| names_of(root, source)).collect();
    let mut chosen = vec![0; possible.len()];
    loop {
        let mut wanted: HashMap<&str, usize> = HashMap::new();
        for (names, at) in possible.iter().zip(&chosen) {
            *wanted.entry(&names[*at]).or_default() += 1;
        }
        let mut is_settled = true;
        for (names, at) in possible.iter().zip(&mut chosen) {
            // All that want a name take another one: who would keep it would follow from what else is there.
            if *at + 1 < names.len() && wanted.get(names[*at].as_str()).is_some_and(|many| *many > 1) {
                *at += 1;
                is_settled = false;
            }
        }
        if is_settled {
            return possible.iter().zip(chosen).map(|(names, at)| format!("{table}_{}", names[at])).collect();
        }
    }
}

/// What may stand behind the table's name for a document, from the shortest on.
fn names_of(root: &str, source: &str) -> [String; 3] {
    // An address may be shown otherwise than it was given; what is behind its '#' is the path.
    let rest = source.strip_prefix(root).or_else(|| source.split_once('#').map(|(_, path)| path)).unwrap_or(source);
    let below = SEPARATORS.into_iter().find_map(|separator| rest.strip_prefix(separator)).unwrap_or(rest);
    let path = Path::new(below);
    let stem = name_part(&super::stem(below));
    let folder = match path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        Some(folder) => name_part(&folder.to_string_lossy()),
        None => name_part(&super::stem(root)),
    };
    let hash: String = Sha256::digest(below).iter().take(HASH_BYTES).map(|byte| format!("{byte:02x}")).collect();
    let with_folder = format!("{folder}_{stem}");
    let with_hash = format!("{with_folder}_{hash}");
    [stem, with_folder, with_hash]
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn given_files_when_their_tables_are_named_then_each_has_the_shortest_name_that_no_other_has() {
        let named = |root: &str, below: &[&str]| {
            let sources: Vec<String> = below.iter().map(|path| format!("{root}{path}")).collect();
            table_names("s", root, &sources.iter().map(String::as_str).collect::<Vec<_>>())
        };
        assert_eq!(named("/a", &["/North-West 1.csv"]), ["s_north_west_1"]);
        assert_eq!(
            named("/a", &["/2023/sales.csv", "/2024/sales.csv", "/b.csv"]),
            ["s_2023_sales", "s_2024_sales", "s_b"]
        );
        assert_eq!(named("/a", &["/sales.csv", "/2024/q1/sales.csv"]), ["s_a_sales", "s_2024_q1_sales"]);
        assert_eq!(named("upload/x.zip!", &["/sales.csv", "/y/sales.json"]), ["s_x_sales", "s_y_sales"]);
        assert_eq!(named("https://h/r.git", &["#x/sales.csv", "#y/sales.csv"]), ["s_x_sales", "s_y_sales"]);
        assert_eq!(named("/a", &[]), Vec::<String>::new());
    }

    #[test]
    fn given_documents_without_rows_when_tables_are_named_then_they_have_none_and_change_no_name() {
        let documents = [("/a/notes.md", false), ("/a/x/sales.csv", true), ("/a/y/sales.md", false)];
        assert_eq!(member_tables("s", "/a", documents), [None, Some("s_sales".to_owned()), None]);
    }

    #[test]
    fn given_paths_that_read_alike_when_named_then_no_two_names_are_the_same_and_none_depends_on_their_order() {
        let long = "/x".repeat(100);
        let table = [
            vec!["/a/a b.csv".to_owned(), "/a/a-b.csv".to_owned()],
            vec!["/a/x y/s.csv".to_owned(), "/a/x-y/s.csv".to_owned()],
            vec!["/a/!x/s.csv".to_owned(), "/a/x/s.csv".to_owned(), "/a/#/s.csv".to_owned()],
            vec!["/a/sales.csv".to_owned(), "/a/sales.json".to_owned(), "/a/SALES.tsv".to_owned()],
            vec!["/a/2023/s.csv".to_owned(), "/a/2024/s.csv".to_owned(), "/a/2023_s.csv".to_owned()],
            vec![format!("/a{long}/1/s.csv"), format!("/a{long}/2/s.csv")],
        ];
        for mut sources in table {
            let named = |sources: &[String]| -> HashMap<String, String> {
                let names = table_names("t", "/a", &sources.iter().map(String::as_str).collect::<Vec<_>>());
                sources.iter().cloned().zip(names).collect()
            };
            let names = named(&sources);
            let distinct: HashSet<String> = names.values().map(|name| name.to_lowercase()).collect();
            assert_eq!(distinct.len(), sources.len(), "{names:?}");
            sources.reverse();
            assert_eq!(named(&sources), names);
        }
    }

    #[test]
    fn given_files_whose_names_read_alike_when_another_such_comes_then_theirs_stay() {
        let two = ["/a/a b.csv", "/a/a-b.csv"];
        let three = ["/a/a b.csv", "/a/a+b.csv", "/a/a-b.csv"];
        let (before, after) = (table_names("t", "/a", &two), table_names("t", "/a", &three));
        assert_eq!(before, [after[0].clone(), after[2].clone()]);
    }
}
