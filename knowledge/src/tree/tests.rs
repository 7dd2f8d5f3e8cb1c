use proptest::prelude::*;

use super::cluster::{DIMENSIONS, MAX_MEMBERS, MAX_TOKENS, clusters, reduced};
use super::*;

fn leaf(ordinal: usize, text: &str) -> Chunk {
    Chunk {
        chunk_id: ChunkId::derive(&["leaf", &ordinal.to_string()]),
        ordinal: ordinal as i32,
        start: ordinal as i64 * 10,
        end: ordinal as i64 * 10 + 10,
        text: text.to_owned(),
        page: None,
        heading: None,
        layer: 0,
        leaves: Vec::new(),
    }
}

/// A vector that follows from a number: near numbers have near vectors.
fn vector(of: usize) -> Vec<f32> {
    let angle = of as f32 * 0.7;
    reduced(&[angle.sin(), angle.cos(), (of % 7) as f32, 1.0])
}

/// Builds a tree to its end; the summary of a group names how many texts it had.
fn grown(leaves: Vec<Chunk>, vector_of: impl Fn(usize) -> Vec<f32>) -> Tree {
    let document = DocumentId::derive(&["d"]);
    let mut tree = Tree::of(leaves);
    let mut below = usize::MAX;
    loop {
        let Work::Embed(nodes) = tree.work() else { panic!("{tree:?}") };
        assert!(nodes < below, "TREE-2: {nodes} above {below}");
        below = nodes;
        assert_eq!(tree.texts(0, nodes).len(), nodes);
        if tree.group_by(&(0..nodes).map(&vector_of).collect::<Vec<_>>()) == Grown::Whole {
            return tree;
        }
        let Work::Summarize(groups) = tree.work() else { panic!("{tree:?}") };
        let summaries = (0..groups)
            .map(|group| {
                let texts = tree.group(group);
                assert!((2..=MAX_MEMBERS).contains(&texts.len()));
                assert!(texts.iter().map(|text| tokens(text)).sum::<usize>() <= MAX_TOKENS);
                format!("{} texts", texts.len())
            })
            .collect();
        if tree.raise(summaries, &document, "v") == Grown::Whole {
            return tree;
        }
    }
}

fn assert_whole(leaves: &[Chunk], tree: Tree) {
    assert!(tree.layers() <= MAX_LAYERS);
    let chunks = tree.into_chunks();
    assert_eq!(&chunks[..leaves.len()], leaves, "TREE-1");
    for (ordinal, chunk) in chunks.iter().enumerate() {
        assert_eq!(chunk.ordinal as usize, ordinal);
        assert_eq!(chunk.layer == 0, chunk.leaves.is_empty());
        assert!(chunk.leaves.len() <= MAX_RUNS);
        for pair in chunk.leaves.windows(2) {
            assert!(pair[0].last + 1 < pair[1].first, "{pair:?}");
        }
        for run in &chunk.leaves {
            assert_eq!(run.start, leaves[run.first as usize].start, "TREE-3");
            assert_eq!(run.end, leaves[run.last as usize].end, "TREE-3");
            assert!(chunk.start <= run.start && run.end <= chunk.end);
        }
    }
    let mut ids: Vec<String> = chunks.iter().map(|chunk| chunk.chunk_id.to_string()).collect();
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), chunks.len());
}

#[test]
fn given_any_number_of_chunks_when_a_tree_is_built_then_it_ends_and_is_whole() {
    for count in [0, 1, 2, 3, 4, 5, 13, 100, 1_000] {
        let leaves: Vec<Chunk> = (0..count).map(|at| leaf(at, &"word ".repeat(at % 40 + 1))).collect();
        let tree = grown(leaves.clone(), vector);
        assert_eq!(tree.layers() > 0, count > 1, "{count}");
        assert_whole(&leaves, tree);
    }
}

#[test]
fn given_twenty_thousand_equal_chunks_when_a_tree_is_built_then_it_ends_and_is_whole() {
    let leaves: Vec<Chunk> = (0..MAX_LEAVES).map(|at| leaf(at, "the same")).collect();
    assert_whole(&leaves, grown(leaves.clone(), |_| reduced(&[1.0, 0.0])));
}

#[test]
fn given_chunks_too_long_for_a_summary_when_a_tree_is_built_then_there_is_none_above_them() {
    let long = "word ".repeat(MAX_TOKENS);
    let leaves: Vec<Chunk> = (0..20).map(|at| leaf(at, &long)).collect();
    let tree = grown(leaves.clone(), vector);
    assert_eq!(tree.layers(), 0);
    assert_whole(&leaves, tree);
}

#[test]
fn given_two_kinds_of_text_when_clustered_then_no_cluster_mixes_them() {
    let vectors: Vec<Vec<f32>> =
        (0..40).map(|at| reduced(&if at % 2 == 0 { [1.0, 0.01, 0.0] } else { [0.0, 0.01, 1.0] })).collect();
    let found = clusters(&vectors, &vec![10; 40]);
    assert!(found.iter().all(|members| members.iter().all(|member| member % 2 == members[0] % 2)), "{found:?}");
}

#[test]
fn given_few_or_very_many_chunks_then_they_get_no_summaries() {
    for (count, expected) in
        [(0, false), (1, false), (3, false), (4, true), (MAX_LEAVES, true), (MAX_LEAVES + 1, false)]
    {
        assert_eq!(Tree::is_for(count), expected, "{count}");
    }
}

#[test]
fn given_leaves_in_more_places_than_are_named_when_joined_then_all_are_within_what_is_named() {
    let leaves: Vec<Chunk> = (0..MAX_RUNS * 6).step_by(3).map(|at| leaf(at, "x")).collect();
    let found = runs(leaves.iter());
    assert!(found.len() <= MAX_RUNS);
    for leaf in &leaves {
        assert!(found.iter().any(|run| run.first <= leaf.ordinal && leaf.ordinal <= run.last), "{leaf:?}");
    }
}

#[test]
fn given_answers_of_a_model_when_cleaned_then_what_is_left_is_a_bounded_summary() {
    assert_eq!(clean("  A summary.\n"), Some("A summary.".to_owned()));
    assert_eq!(clean(" \n\t"), None);
    assert!(clean(&"ä".repeat(10_000)).is_some_and(|summary| summary.len() <= 3_000));
}

proptest! {
    #[test]
    fn clusters_are_a_partition_within_their_bounds(
        texts in proptest::collection::vec((proptest::collection::vec(-1.0_f32..1.0, 5), 1_usize..3_000), 0..200),
    ) {
        let vectors: Vec<Vec<f32>> = texts.iter().map(|(vector, _)| reduced(vector)).collect();
        let sizes: Vec<usize> = texts.iter().map(|(_, size)| *size).collect();
        let found = clusters(&vectors, &sizes);
        prop_assert_eq!(&found, &clusters(&vectors, &sizes));
        let mut members: Vec<usize> = found.iter().flatten().copied().collect();
        members.sort_unstable();
        prop_assert_eq!(members, (0..texts.len()).collect::<Vec<_>>());
        for cluster in &found {
            let size: usize = cluster.iter().map(|member| sizes[*member]).sum();
            prop_assert!(cluster.len() == 1 || (cluster.len() <= MAX_MEMBERS && size <= MAX_TOKENS));
        }
    }

    #[test]
    fn reduced_vectors_are_finite_and_know_only_directions(vector in proptest::collection::vec(-1e30_f32..1e30, 0..50)) {
        let once = reduced(&vector);
        prop_assert_eq!(once.len(), DIMENSIONS);
        prop_assert!(once.iter().all(|x| x.is_finite()));
        let twice: Vec<f32> = vector.iter().map(|x| x * 2.0).collect();
        prop_assert!(once.iter().zip(reduced(&twice)).all(|(a, b)| (a - b).abs() < 1e-5));
    }
}
