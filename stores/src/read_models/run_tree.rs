//! The runs that belong together: forks with what they branched off, and runs of chains with those that they wait for.

use std::collections::{HashSet, VecDeque};

use riverrun_schemas::RunId;
use riverrun_schemas::agent::RunRequest;
use serde::{Deserialize, Serialize};
use sqlx::Row;
use utoipa::ToSchema;

use crate::error::StoreError;
use crate::read_models::run_chains::each_behind;
use crate::read_models::run_views::{ChainLinkView, ForkView, RunStatus};
use crate::read_models::runs::{forked_from, from_json, id, status};
use crate::read_models::time::Timestamp;
use crate::sql::{DbConnection, DbRow, Sql};

/// Most runs of a tree that are shown.
pub const MAX_TREE: usize = 1_000;

/// Runs that branched off each other or wait for each other.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Tree {
    /// The runs, each behind those that it came from.
    pub items: Vec<TreeNode>,
    /// What leads from one of them to another.
    pub edges: Vec<TreeEdge>,
    /// There are more than are shown: the nearest are.
    pub truncated: bool,
}

/// A run of a tree.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct TreeNode {
    /// The run.
    #[schema(value_type = String)]
    pub run_id: RunId,
    /// Where it branched off; null for one that did not.
    pub forked_from: Option<ForkView>,
    /// Its place in a chain.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chain: Option<ChainLinkView>,
    /// Where it is.
    pub status: RunStatus,
    /// The agent type at work.
    pub agent: Option<String>,
    /// Its model.
    pub model: Option<String>,
    /// What it was asked to do.
    pub task: String,
    /// How many steps it has, the copied ones included.
    pub steps: i64,
    /// When it was accepted.
    #[schema(value_type = String, format = DateTime)]
    pub created_at: Timestamp,
}

/// What leads from one run to another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum EdgeKind {
    /// The other branched off it.
    Fork,
    /// The other waits for its answer.
    Chain,
}

/// A way from one run of a tree to another.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TreeEdge {
    /// What it is.
    pub kind: EdgeKind,
    /// The earlier run.
    #[schema(value_type = String)]
    pub from: RunId,
    /// The later run.
    #[schema(value_type = String)]
    pub to: RunId,
    /// Of a fork: the last step that both share.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at_seq: Option<i64>,
}

/// A run with those that it waits for.
struct Found {
    node: TreeNode,
    after: Vec<RunId>,
}

impl Found {
    /// The runs that it came from.
    fn before(&self) -> Vec<RunId> {
        self.node.forked_from.iter().map(|from| from.run_id).chain(self.after.iter().copied()).collect()
    }

    fn edges(&self) -> Vec<TreeEdge> {
        let to = self.node.run_id;
        let fork = self.node.forked_from.iter().map(|from| TreeEdge {
            kind: EdgeKind::Fork,
            from: from.run_id,
            to,
            at_seq: Some(from.at_seq),
        });
        let chain = self.after.iter().map(|from| TreeEdge { kind: EdgeKind::Chain, from: *from, to, at_seq: None });
        fork.chain(chain).collect()
    }
}

/// Everything that is connected with this run by forks and chains, within its namespace; empty when there is no such
/// run. At most [`MAX_TREE`] runs, the nearest first.
pub async fn tree(sql: &Sql, run_id: RunId) -> Result<Tree, StoreError> {
    let attempt = async {
        let mut transaction = sql.snapshot().await?;
        let (found, truncated) = connected(&mut transaction, run_id).await?;
        Ok(laid_out(found, truncated))
    };
    attempt.await.map_err(|error: StoreError| error.at(sql.path()))
}

async fn connected(connection: &mut DbConnection, run_id: RunId) -> Result<(Vec<Found>, bool), StoreError> {
    let (mut found, mut truncated, mut namespace) = (Vec::new(), false, None::<String>);
    let (mut open, mut seen) = (VecDeque::from([run_id]), HashSet::from([run_id]));
    while let Some(next) = open.pop_front() {
        let Some((of, run)) = one(connection, next, namespace.as_deref()).await? else { continue };
        namespace.get_or_insert(of);
        let behind = behind(connection, next).await?;
        for other in run.before().into_iter().chain(behind) {
            if seen.contains(&other) {
                continue;
            }
            if seen.len() >= MAX_TREE {
                truncated = true;
                break;
            }
            seen.insert(other);
            open.push_back(other);
        }
        found.push(run);
    }
    Ok((found, truncated))
}

/// The run with its namespace; `None` when there is none of that id (in that namespace).
async fn one(
    connection: &mut DbConnection,
    run_id: RunId,
    namespace: Option<&str>,
) -> Result<Option<(String, Found)>, StoreError> {
    let row = sqlx::query(
        "SELECT run_id, namespace, status, agent, request, last_seq, forked_from, forked_at_seq, created_at
         FROM runs WHERE run_id = $1 AND (CAST($2 AS TEXT) IS NULL OR namespace = $2)",
    )
    .bind(run_id.to_string())
    .bind(namespace)
    .fetch_optional(connection)
    .await?;
    row.as_ref().map(|row| Ok((row.try_get("namespace")?, found(row)?))).transpose()
}

/// The runs that branched off this one, and those that wait for it.
async fn behind(connection: &mut DbConnection, run_id: RunId) -> Result<Vec<RunId>, StoreError> {
    let rows = sqlx::query(
        "SELECT run_id FROM runs WHERE forked_from = $1
         UNION SELECT run_id FROM run_after WHERE before_id = $1
         ORDER BY run_id LIMIT $2",
    )
    .bind(run_id.to_string())
    .bind(i64::try_from(MAX_TREE).unwrap_or(i64::MAX - 1) + 1) // one more, so that it shows that there are more
    .fetch_all(connection)
    .await?;
    rows.iter().map(|row| id("runs", row.try_get("run_id")?)).collect()
}

/// The tree of what was found.
fn laid_out(mut found: Vec<Found>, truncated: bool) -> Tree {
    found.sort_by_key(|run| (run.node.created_at.0, run.node.run_id));
    let found = each_behind(found, |run| run.node.run_id, Found::before);
    let shown: HashSet<RunId> = found.iter().map(|run| run.node.run_id).collect();
    let edges = found.iter().flat_map(Found::edges).filter(|edge| shown.contains(&edge.from)).collect();
    Tree { edges, items: found.into_iter().map(|run| run.node).collect(), truncated }
}

fn found(row: &DbRow) -> Result<Found, StoreError> {
    let key: String = row.try_get("run_id")?;
    let request: RunRequest = from_json("runs", &key, row.try_get("request")?)?;
    let node = TreeNode {
        run_id: id("runs", &key)?,
        forked_from: forked_from(row)?.as_ref().map(ForkView::from),
        chain: request.chain.as_ref().map(ChainLinkView::from),
        status: status(row)?,
        agent: row.try_get("agent")?,
        model: request.model,
        task: request.task,
        steps: row.try_get("last_seq")?,
        created_at: Timestamp(row.try_get("created_at")?),
    };
    Ok(Found { node, after: request.after })
}

#[cfg(test)]
mod tests {
    use riverrun_schemas::ChainId;
    use riverrun_schemas::agent::{AgentEvent, ChainLink, ForkedFrom, RunAccepted, RunOutcome};

    use super::*;
    use crate::read_models::run_chains::{ChainView, members};
    use crate::read_models::runs::{self, RunFilter};
    use crate::read_models::testing::{finished, fresh, of_run, records, request};
    use crate::read_models::{PageRequest, Projected, Within, apply, rebuild};

    fn run(name: &str) -> RunId {
        RunId::derive(&[name])
    }

    fn chain() -> ChainId {
        ChainId::derive(&["chain"])
    }

    /// A run that waits for some or branched off one.
    fn accepted(name: &str, after: &[&str], forked: Option<&str>, at: i64) -> RunAccepted {
        let link = ChainLink { chain_id: chain(), name: name.into(), runs: 4 };
        let mut request = request();
        request.after = after.iter().map(|name| run(name)).collect();
        request.chain = forked.is_none().then_some(link);
        let forked_from = forked.map(|from| ForkedFrom { run_id: run(from), at_seq: 3 });
        RunAccepted { run_id: run(name), request, forked_from, at }
    }

    async fn written(sql: &Sql, events: Vec<AgentEvent>) {
        let records = records(events, Projected::Agent);
        // Handed in twice, and made again from the beginning.
        apply(sql, &records).await.unwrap();
        apply(sql, &records).await.unwrap();
        rebuild(sql).await.unwrap();
        apply(sql, &records).await.unwrap();
    }

    fn edge(kind: EdgeKind, from: &str, to: &str) -> TreeEdge {
        TreeEdge { kind, from: run(from), to: run(to), at_seq: (kind == EdgeKind::Fork).then_some(3) }
    }

    #[tokio::test]
    async fn given_a_diamond_with_a_fork_when_the_tree_of_any_run_is_read_then_it_is_the_whole_with_each_edge() {
        let (_folder, sql) = fresh().await;
        // As they are accepted: whoever waits comes first.
        let stranger = {
            let mut stranger = accepted("stranger", &["start"], None, 9);
            (stranger.request.chain, stranger.request.namespace) = (None, "other".parse().unwrap());
            stranger
        };
        written(
            &sql,
            vec![
                accepted("end", &["left", "right"], None, 1).into(),
                accepted("right", &["start"], None, 1).into(),
                accepted("left", &["start"], None, 1).into(),
                accepted("start", &["gone"], None, 1).into(),
                accepted("fork", &[], Some("left"), 5).into(),
                accepted("alone", &[], Some("nobody"), 6).into(),
                stranger.into(),
            ],
        )
        .await;
        for from in ["start", "left", "right", "end", "fork"] {
            let tree = tree(&sql, run(from)).await.unwrap();
            let place = |name: &str| tree.items.iter().position(|node| node.run_id == run(name)).unwrap();
            assert_eq!((tree.items.len(), tree.edges.len(), tree.truncated), (5, 5, false), "from {from}");
            for expected in [
                edge(EdgeKind::Chain, "start", "left"),
                edge(EdgeKind::Chain, "start", "right"),
                edge(EdgeKind::Chain, "left", "end"),
                edge(EdgeKind::Chain, "right", "end"),
                edge(EdgeKind::Fork, "left", "fork"),
            ] {
                assert!(tree.edges.contains(&expected), "from {from}: {expected:?}");
            }
            assert!(tree.edges.iter().all(|edge| {
                let at = |id: RunId| tree.items.iter().position(|node| node.run_id == id);
                at(edge.from) < at(edge.to)
            }));
            assert!(place("start") == 0 && place("left") < place("fork"));
        }
        assert_eq!(tree(&sql, run("alone")).await.unwrap().items.len(), 1);
        assert_eq!(tree(&sql, run("stranger")).await.unwrap().items.len(), 1, "of its namespace only");
        assert_eq!(tree(&sql, run("nobody")).await.unwrap(), Tree::default());
    }

    #[tokio::test]
    async fn given_more_runs_than_are_shown_when_the_tree_is_read_then_the_nearest_are_shown_and_it_says_so() {
        let (_folder, sql) = fresh().await;
        let source = accepted("source", &[], None, 0);
        let forks = (0..MAX_TREE).map(|n| AgentEvent::from(accepted(&n.to_string(), &[], Some("source"), 1)));
        written(&sql, std::iter::once(source.into()).chain(forks).collect()).await;
        let tree = tree(&sql, run("7")).await.unwrap();
        assert_eq!((tree.items.len(), tree.truncated), (MAX_TREE, true));
        assert_eq!(tree.items[0].run_id, run("source"));
        assert!(tree.items.iter().any(|node| node.run_id == run("7")));
    }

    #[tokio::test]
    async fn given_a_chain_when_it_is_read_then_it_adds_up_and_lists_find_its_runs() {
        let (_folder, sql) = fresh().await;
        let end = |name: &str, status: RunOutcome| {
            let AgentEvent::RunFinished(end) = of_run(finished(0), run(name)) else { unreachable!("it is an end") };
            AgentEvent::from(riverrun_schemas::agent::RunFinished { status, ..end })
        };
        let events: Vec<AgentEvent> = vec![
            accepted("d", &["b", "c"], None, 4).into(),
            accepted("c", &["a"], None, 4).into(),
            accepted("b", &["a"], None, 4).into(),
            accepted("a", &[], None, 4).into(),
            end("a", RunOutcome::Succeeded),
            end("b", RunOutcome::Failed),
            end("d", RunOutcome::Failed),
            end("c", RunOutcome::Succeeded),
        ];
        for count in 4..=events.len() {
            let (_folder, sql) = fresh().await;
            written(&sql, events[..count].to_vec()).await;
            let view = ChainView::of(chain(), members(&sql, chain()).await.unwrap()).unwrap();
            let ended = i64::try_from(count - 4).unwrap();
            let expected = match ended {
                0 => RunStatus::Queued,
                1..=3 => RunStatus::Running,
                _ => RunStatus::Failed,
            };
            assert_eq!((view.status, view.runs_total, view.usage.total_tokens), (expected, 4, ended * 45));
            assert_eq!(view.finished_at.is_some(), ended == 4);
            let names: Vec<&str> = view.runs.iter().map(|run| run.name.as_str()).collect();
            assert!(names[0] == "a" && names[3] == "d", "each behind those that it waits for: {names:?}");
        }
        written(&sql, events).await;
        for (chain, count) in [(Some(chain()), 4), (Some(ChainId::derive(&["other"])), 0), (None, 4)] {
            let filter = RunFilter { chain, ..RunFilter::default() };
            let found = runs::list(&sql, Within::EveryNamespace, &filter, &PageRequest::default()).await.unwrap();
            assert_eq!(found.items.len(), count);
        }
        assert_eq!(ChainView::of(chain(), Vec::new()), None);
    }
}
