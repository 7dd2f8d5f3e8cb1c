//! What was asked for under idempotency keys: requests whose ids follow from a key in their first half are neighbours.

use std::fmt::Display;
use std::str::FromStr;

use sqlx::Row;

use crate::error::StoreError;
use crate::read_models::runs::id;
use crate::sql::Sql;

/// Requests that are looked at under one key. There is one, or two where two processes were asked for different things at once.
const MAX_FOUND: i64 = 16;

/// Where requests stand whose ids follow from keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyedTable {
    /// Ingests.
    Ingests,
    /// Requests for another embedding model.
    Reembeddings,
    /// Requests to make indexes again.
    Rebuilds,
    /// Requests to tune searches.
    Tunings,
    /// Imported projects.
    Projects,
    /// Analyses of projects.
    Analyses,
    /// Proposed rewrites.
    Proposals,
    /// Changes of copies.
    Changes,
}

impl KeyedTable {
    fn name(self) -> &'static str {
        match self {
            KeyedTable::Ingests => "ingests",
            KeyedTable::Reembeddings => "reembeddings",
            KeyedTable::Rebuilds => "rebuilds",
            KeyedTable::Tunings => "tunings",
            KeyedTable::Projects => "projects",
            KeyedTable::Analyses => "project_analyses",
            KeyedTable::Proposals => "project_proposals",
            KeyedTable::Changes => "project_changes",
        }
    }

    fn select(self) -> &'static str {
        match self {
            KeyedTable::Ingests => {
                "SELECT ingest_id AS id FROM ingests WHERE ingest_id BETWEEN $1 AND $2 OR ingest_id = $3 LIMIT $4"
            }
            KeyedTable::Reembeddings => {
                "SELECT reembedding_id AS id FROM reembeddings WHERE reembedding_id BETWEEN $1 AND $2 OR reembedding_id = $3 LIMIT $4"
            }
            KeyedTable::Rebuilds => {
                "SELECT rebuild_id AS id FROM rebuilds WHERE rebuild_id BETWEEN $1 AND $2 OR rebuild_id = $3 LIMIT $4"
            }
            KeyedTable::Tunings => {
                "SELECT tuning_id AS id FROM tunings WHERE tuning_id BETWEEN $1 AND $2 OR tuning_id = $3 LIMIT $4"
            }
            KeyedTable::Projects => {
                "SELECT project_id AS id FROM projects WHERE project_id BETWEEN $1 AND $2 OR project_id = $3 LIMIT $4"
            }
            KeyedTable::Analyses => {
                "SELECT analysis_id AS id FROM project_analyses WHERE analysis_id BETWEEN $1 AND $2 OR analysis_id = $3 LIMIT $4"
            }
            KeyedTable::Proposals => {
                "SELECT proposal_id AS id FROM project_proposals WHERE proposal_id BETWEEN $1 AND $2 OR proposal_id = $3 LIMIT $4"
            }
            KeyedTable::Changes => {
                "SELECT change_id AS id FROM project_changes WHERE change_id BETWEEN $1 AND $2 OR change_id = $3 LIMIT $4"
            }
        }
    }
}

/// The ids that are there between these two, and `other` where it is there.
pub async fn known<I>(sql: &Sql, table: KeyedTable, (least, greatest): (I, I), other: I) -> Result<Vec<I>, StoreError>
where
    I: Display + FromStr<Err: Display>,
{
    let rows = sqlx::query(table.select())
        .bind(least.to_string())
        .bind(greatest.to_string())
        .bind(other.to_string())
        .bind(MAX_FOUND)
        .fetch_all(sql.reader())
        .await
        .map_err(|error| StoreError::from(error).at(sql.path()))?;
    rows.iter().map(|row| id(table.name(), row.try_get("id")?)).collect()
}

#[cfg(test)]
mod tests {
    use riverrun_schemas::{AnalysisId, ChangeId, IngestId, ProjectId, ProposalId};

    use super::*;
    use crate::read_models::testing::{begun, fresh, records, request_to_tune, scanned};
    use crate::read_models::{Projected, apply};

    #[tokio::test]
    async fn given_requests_when_those_of_a_key_are_looked_for_then_its_neighbours_are_found_and_no_others() {
        let (_folder, sql) = fresh().await;
        let events = [scanned(1, 0, 5), scanned(2, 0, 6), begun(3, 7)];
        apply(&sql, &records(events, Projected::Ingest)).await.unwrap();
        let first = crate::read_models::testing::ingest_id(1);
        let beside = IngestId::derive_beside(&["1"], &["another body"]);
        let nobody = IngestId::derive(&["nobody"]);
        let found = known(&sql, KeyedTable::Ingests, beside.neighbours(), nobody).await.unwrap();
        assert_eq!(found, [first], "a request whose id is of the key alone is a neighbour, too");
        let found = known(&sql, KeyedTable::Ingests, nobody.neighbours(), first).await.unwrap();
        assert_eq!(found, [first]);
        assert!(known(&sql, KeyedTable::Ingests, nobody.neighbours(), nobody).await.unwrap().is_empty());
        let tuning = request_to_tune(3);
        assert_eq!(known(&sql, KeyedTable::Tunings, tuning.neighbours(), nobody).await.unwrap(), [tuning]);
    }

    #[tokio::test]
    async fn given_each_table_when_it_is_asked_then_the_statement_is_one() {
        let (_folder, sql) = fresh().await;
        let ingest = IngestId::new();
        for table in [KeyedTable::Ingests, KeyedTable::Reembeddings, KeyedTable::Rebuilds, KeyedTable::Tunings] {
            assert!(known(&sql, table, ingest.neighbours(), ingest).await.unwrap().is_empty(), "{table:?}");
        }
        let (project, analysis, proposal) = (ProjectId::new(), AnalysisId::new(), ProposalId::new());
        assert!(known(&sql, KeyedTable::Projects, project.neighbours(), project).await.unwrap().is_empty());
        assert!(known(&sql, KeyedTable::Analyses, analysis.neighbours(), analysis).await.unwrap().is_empty());
        assert!(known(&sql, KeyedTable::Proposals, proposal.neighbours(), proposal).await.unwrap().is_empty());
        let change = ChangeId::new();
        assert!(known(&sql, KeyedTable::Changes, change.neighbours(), change).await.unwrap().is_empty());
    }
}
