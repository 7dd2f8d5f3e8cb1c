//! Chains: runs that were started together, and where the whole of them is.

use std::collections::HashSet;

use riverrun_schemas::{ChainId, RunId};
use serde::{Deserialize, Serialize};
use sqlx::Row;
use utoipa::ToSchema;

use crate::error::StoreError;
use crate::read_models::run_views::{FailureView, RunStatus, RunView, UsageView};
use crate::read_models::runs::run_view;
use crate::read_models::time::Timestamp;
use crate::sql::{DbRow, Sql};

/// Most runs of a chain that are read: none that the API makes has more than 64.
const MAX_RUNS: i64 = 1_000;

/// A run of a chain with how many steps it has, which `run` itself may not bring.
#[derive(Debug, Clone, PartialEq)]
pub struct ChainMember {
    /// The run.
    pub run: RunView,
    /// How many steps it has.
    pub steps: i64,
}

impl From<RunView> for ChainMember {
    /// A run with all its steps.
    fn from(run: RunView) -> Self {
        Self { steps: run.steps.last().map_or(0, |step| step.seq), run }
    }
}

/// A chain and each of its runs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ChainView {
    /// The chain.
    #[schema(value_type = String)]
    pub chain_id: ChainId,
    /// The namespace of all its runs.
    pub namespace: String,
    /// `queued` until one of its runs has begun, `waiting_approval` while one waits for a person, `running` until all have
    /// ended; then `failed` when one failed, else `cancelled` when one was, else `succeeded`.
    pub status: RunStatus,
    /// Each behind those that it waits for.
    pub runs: Vec<ChainRunView>,
    /// How many runs it has; more than are listed when commands were lost, which the same request with the same
    /// `Idempotency-Key` brings again.
    pub runs_total: i64,
    /// Tokens of all its runs.
    pub usage: UsageView,
    /// When the first of them was accepted.
    #[schema(value_type = String, format = DateTime)]
    pub created_at: Timestamp,
    /// When the last of them ended; null before.
    #[schema(value_type = Option<String>, format = DateTime)]
    pub finished_at: Option<Timestamp>,
}

/// A run of a chain, in short.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ChainRunView {
    /// Its name within the chain.
    pub name: String,
    /// The run.
    #[schema(value_type = String)]
    pub run_id: RunId,
    /// The runs that must succeed before it begins.
    #[schema(value_type = Vec<String>)]
    pub after: Vec<RunId>,
    /// Where it is.
    pub status: RunStatus,
    /// The agent type at work.
    pub agent: Option<String>,
    /// What it was asked to do.
    pub task: String,
    /// How many steps it has.
    pub steps: i64,
    /// Tokens so far.
    pub usage: UsageView,
    /// Why it ended; null before.
    pub stop_reason: Option<String>,
    /// Why it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<FailureView>,
    /// When it ended; null before.
    #[schema(value_type = Option<String>, format = DateTime)]
    pub finished_at: Option<Timestamp>,
}

impl ChainView {
    /// The chain that these are the runs of; `None` without any.
    pub fn of(chain_id: ChainId, mut members: Vec<ChainMember>) -> Option<Self> {
        members.sort_by_key(|member| (member.run.created_at.0, member.run.run_id));
        let members = each_behind(members, |member| member.run.run_id, |member| member.run.after.clone());
        let first = members.first()?;
        let namespace = first.run.namespace.clone();
        let named =
            members.iter().filter_map(|member| member.run.chain.as_ref()).map(|link| i64::from(link.runs)).max();
        let runs_total = named.unwrap_or(0).max(i64::try_from(members.len()).unwrap_or(i64::MAX));
        let created_at = members.iter().map(|member| member.run.created_at.0).min().unwrap_or(0);
        let whole = i64::try_from(members.len()) == Ok(runs_total);
        let statuses: Vec<RunStatus> = members.iter().map(|member| member.run.status).collect();
        let status = overall(&statuses, whole);
        let last = members.iter().filter_map(|member| member.run.finished_at.as_ref()).map(|at| at.0).max();
        Some(Self {
            chain_id,
            namespace,
            status,
            usage: members.iter().fold(UsageView::default(), |sum, member| sum.plus(&member.run.usage)),
            runs: members.into_iter().map(ChainRunView::from).collect(),
            runs_total,
            created_at: Timestamp(created_at),
            finished_at: last.filter(|_| status.ended()).map(Timestamp),
        })
    }
}

impl From<ChainMember> for ChainRunView {
    fn from(ChainMember { run, steps }: ChainMember) -> Self {
        Self {
            name: run.chain.map(|link| link.name).unwrap_or_default(),
            run_id: run.run_id,
            after: run.after,
            status: run.status,
            agent: run.agent,
            task: run.task,
            steps,
            usage: run.usage,
            stop_reason: run.stop_reason,
            error: run.error,
            finished_at: run.finished_at,
        }
    }
}

/// Where a chain is whose runs are there; `whole` says that none is missing.
fn overall(runs: &[RunStatus], whole: bool) -> RunStatus {
    let any = |status: RunStatus| runs.contains(&status);
    if !(whole && runs.iter().all(|status| status.ended())) {
        return match (any(RunStatus::WaitingApproval), runs.iter().all(|status| *status == RunStatus::Queued)) {
            (true, _) => RunStatus::WaitingApproval,
            (false, true) => RunStatus::Queued,
            (false, false) => RunStatus::Running,
        };
    }
    match (any(RunStatus::Failed), any(RunStatus::Cancelled)) {
        (true, _) => RunStatus::Failed,
        (false, true) => RunStatus::Cancelled,
        (false, false) => RunStatus::Succeeded,
    }
}

/// The items in their order, but each behind those that come before it; a circle is left as it is.
pub(crate) fn each_behind<T>(items: Vec<T>, id: impl Fn(&T) -> RunId, before: impl Fn(&T) -> Vec<RunId>) -> Vec<T> {
    let mut left: HashSet<RunId> = items.iter().map(&id).collect();
    let (mut rest, mut ordered) = (items, Vec::new());
    while !rest.is_empty() {
        let count = rest.len();
        let mut held = Vec::new();
        for item in rest {
            if before(&item).iter().any(|other| left.contains(other)) {
                held.push(item);
            } else {
                left.remove(&id(&item));
                ordered.push(item);
            }
        }
        if held.len() == count {
            ordered.append(&mut held);
        }
        rest = held;
    }
    ordered
}

/// The runs of a chain, without their steps; empty when there is no such chain.
pub async fn members(sql: &Sql, chain_id: ChainId) -> Result<Vec<ChainMember>, StoreError> {
    let rows = sqlx::query("SELECT * FROM runs WHERE chain_id = $1 ORDER BY created_at, run_id LIMIT $2")
        .bind(chain_id.to_string())
        .bind(MAX_RUNS)
        .fetch_all(sql.reader())
        .await
        .map_err(|error| StoreError::from(error).at(sql.path()))?;
    rows.iter().map(member).collect::<Result<Vec<_>, StoreError>>().map_err(|error| error.at(sql.path()))
}

fn member(row: &DbRow) -> Result<ChainMember, StoreError> {
    Ok(ChainMember { run: run_view(row, Vec::new())?, steps: row.try_get("last_seq")? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn given_where_its_runs_are_then_a_chain_is_somewhere_too() {
        use RunStatus::{Cancelled, Failed, Queued, Running, Succeeded, WaitingApproval};
        for (runs, whole, expected) in [
            (vec![Queued, Queued], true, Queued),
            (vec![Queued, Running], true, Running),
            (vec![Queued, Succeeded], true, Running),
            (vec![WaitingApproval, Running, Failed], true, WaitingApproval),
            (vec![Succeeded, Succeeded], true, Succeeded),
            (vec![Succeeded, Succeeded], false, Running),
            (vec![Queued], false, Queued),
            (vec![Succeeded, Failed, Cancelled], true, Failed),
            (vec![Succeeded, Cancelled], true, Cancelled),
        ] {
            assert_eq!(overall(&runs, whole), expected, "{runs:?} {whole}");
        }
    }

    #[test]
    fn given_items_in_any_order_then_each_is_behind_those_before_it_and_a_circle_loses_none() {
        let run = |n: u8| RunId::derive(&[&n.to_string()]);
        let before = |n: &u8| match n {
            4 => vec![run(2), run(3)],
            2 | 3 => vec![run(1), run(99)],
            5 => vec![run(6)],
            6 => vec![run(5)],
            _ => vec![],
        };
        let ordered = |items: &[u8]| each_behind(items.to_vec(), |n| run(*n), before);
        assert_eq!(ordered(&[4, 3, 2, 1]), [1, 3, 2, 4]);
        assert_eq!(ordered(&[1, 2, 3, 4]), [1, 2, 3, 4]);
        assert_eq!(ordered(&[5, 4, 6, 1]), [4, 1, 5, 6], "what is not there is not waited for");
        assert!(ordered(&[]).is_empty());
    }
}
