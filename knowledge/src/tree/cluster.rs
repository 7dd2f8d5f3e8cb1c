//! Which texts belong together.
//!
//! The paper reduces vectors with UMAP and fits Gaussian mixtures whose number the BIC chooses. Neither has a bound on how large a
//! cluster gets, both draw random numbers, and mixtures of thousands of near-equal texts degenerate (singular covariances). Here it is
//! bisecting k-means (Steinbach, Karypis and Kumar, "A comparison of document clustering techniques", 2000) on vectors that were
//! reduced by a random projection (Achlioptas, "Database-friendly random projections", 2003) with a fixed seed: clusters are cut in two
//! until a model can read each at once. The same vectors always give the same clusters, equal vectors are cut in reading order, and
//! no cut leaves less than a quarter on a side, so that it ends after at most log(n) / log(4/3) of them. Time: O(n log n).

/// Numbers of a reduced vector.
pub const DIMENSIONS: usize = 32;
/// Tokens that a model reads for one summary; a text that has more by itself is a cluster of its own.
pub const MAX_TOKENS: usize = 1_800;
/// Texts of one cluster.
pub const MAX_MEMBERS: usize = 12;

/// Fixed, so that a tree is built the same after a crash.
const SEED: u64 = 0x7269_7665_7272_756e;
/// Rounds of Lloyd's algorithm; two clusters settle long before.
const ROUNDS: usize = 10;

/// The direction of a vector in [`DIMENSIONS`] numbers; angles stay nearly what they were.
pub fn reduced(vector: &[f32]) -> Vec<f32> {
    let length = vector.iter().map(|x| f64::from(*x) * f64::from(*x)).sum::<f64>().sqrt();
    let mut sums = [0.0_f64; DIMENSIONS];
    if length > 0.0 && length.is_finite() {
        for (at, x) in vector.iter().enumerate() {
            let signs = mixed(SEED.wrapping_add(at as u64));
            for (bit, sum) in sums.iter_mut().enumerate() {
                let x = f64::from(*x) / length;
                *sum += if (signs >> bit) & 1 == 1 { x } else { -x };
            }
        }
    }
    sums.iter().map(|sum| (sum / (DIMENSIONS as f64).sqrt()) as f32).collect()
}

/// SplitMix64 (Steele, Lea and Flood, 2014).
fn mixed(seed: u64) -> u64 {
    let mut z = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Clusters of texts by their vectors and sizes in tokens: each text is in exactly one; members and clusters in reading order. Texts
/// without a vector or a size are in none.
pub fn clusters(vectors: &[Vec<f32>], tokens: &[usize]) -> Vec<Vec<usize>> {
    let all: Vec<usize> = (0..vectors.len().min(tokens.len())).collect();
    let mut open = vec![all];
    let mut closed = Vec::new();
    while let Some(mut members) = open.pop() {
        if members.is_empty() {
            continue;
        }
        if fits(&members, tokens) {
            members.sort_unstable();
            closed.push(members);
        } else {
            let (one, other) = cut(vectors, members);
            open.push(one);
            open.push(other);
        }
    }
    closed.sort_unstable();
    closed
}

fn fits(members: &[usize], tokens: &[usize]) -> bool {
    let size = members.iter().fold(0_usize, |sum, member| sum.saturating_add(tokens[*member]));
    members.len() == 1 || (members.len() <= MAX_MEMBERS && size <= MAX_TOKENS)
}

/// Cuts two or more in two along the line between their two means; neither part is empty.
fn cut(vectors: &[Vec<f32>], mut members: Vec<usize>) -> (Vec<usize>, Vec<usize>) {
    let (one, other) = two_means(vectors, &members);
    let direction: Vec<f32> = other.iter().zip(&one).map(|(b, a)| b - a).collect();
    let middle = (dot(&direction, &one) + dot(&direction, &other)) / 2.0;
    let place = |member: &usize| dot(&direction, &vectors[*member]);
    members.sort_by(|a, b| place(a).total_cmp(&place(b)).then(a.cmp(b)));
    let quarter = (members.len() / 4).max(1);
    let at = if direction.iter().all(|x| *x == 0.0) {
        members.len() / 2
    } else {
        members.partition_point(|member| place(member) < middle).clamp(quarter, members.len() - quarter)
    };
    let rest = members.split_off(at);
    (members, rest)
}

/// Lloyd's algorithm for two, from the member that is farthest from the mean and the one that is farthest from that.
fn two_means(vectors: &[Vec<f32>], members: &[usize]) -> (Vec<f32>, Vec<f32>) {
    let center = mean(vectors, members.iter().copied());
    let mut one = farthest(vectors, members, &center);
    let mut other = farthest(vectors, members, &one);
    for _ in 0..ROUNDS {
        let (near_one, near_other): (Vec<usize>, Vec<usize>) = members
            .iter()
            .copied()
            .partition(|member| distance(&vectors[*member], &one) <= distance(&vectors[*member], &other));
        if near_other.is_empty() {
            break;
        }
        let next = (mean(vectors, near_one.into_iter()), mean(vectors, near_other.into_iter()));
        if next.0 == one && next.1 == other {
            break;
        }
        (one, other) = next;
    }
    (one, other)
}

fn mean(vectors: &[Vec<f32>], members: impl ExactSizeIterator<Item = usize>) -> Vec<f32> {
    let count = members.len().max(1) as f32;
    let mut sum = [0.0_f32; DIMENSIONS];
    for member in members {
        sum.iter_mut().zip(&vectors[member]).for_each(|(sum, x)| *sum += x);
    }
    sum.iter().map(|x| x / count).collect()
}

/// The first of equals.
fn farthest(vectors: &[Vec<f32>], members: &[usize], from: &[f32]) -> Vec<f32> {
    let apart = members.iter().map(|member| (distance(&vectors[*member], from), *member));
    let far = apart.reduce(|best, next| if next.0 > best.0 { next } else { best });
    far.map_or_else(|| from.to_vec(), |(_, member)| vectors[member].clone())
}

fn distance(a: &[f32], b: &[f32]) -> f32 {
    a.iter().zip(b).map(|(x, y)| (x - y) * (x - y)).sum()
}

fn dot(a: &[f32], b: &[f32]) -> f32 {
    a.iter().zip(b).map(|(x, y)| x * y).sum()
}
