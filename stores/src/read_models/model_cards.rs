//! Cards of models: what each can do, as it was measured last on each kind of machine. They are of the machine, as models are, and of no
//! namespace. Their events lie among those of fine-tuning.

use riverrun_schemas::finetune::ModelProbed;
use serde::{Deserialize, Serialize};
use sqlx::Row;
use utoipa::ToSchema;

use crate::error::StoreError;
use crate::read_models::runs::number_text;
use crate::read_models::time::Timestamp;
use crate::sql::{DbConnection, DbRow, Sql, storable};

/// Most cards of one answer.
pub const MAX_CARDS: i64 = 500;

/// What was measured of a model.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ModelCardView {
    /// The provider that ran it.
    pub provider: String,
    /// The model.
    pub model: String,
    /// Processor and threads that the speeds belong to.
    pub machine: String,
    /// Tokens that prompt and answer may have together, as the provider tells or as it was met.
    pub context_tokens: Option<i64>,
    /// Tokens of the longest prompt whose beginning the model still knew, of those that were tried.
    pub usable_context_tokens: Option<i64>,
    /// Questions for each of the next two.
    pub questions: i64,
    /// Answers that were JSON of the schema that was asked for.
    pub valid_json: i64,
    /// Answers that called the offered tool with its argument.
    pub valid_tool_calls: i64,
    /// Tokens of a prompt a second, until the first piece of the answer.
    pub prompt_tokens_per_s: Option<f64>,
    /// Tokens of an answer a second, behind its first piece.
    pub tokens_per_s: Option<f64>,
    /// When it was measured.
    #[schema(value_type = String, format = DateTime)]
    pub measured_at: Timestamp,
}

/// Puts a card in the place of an older one. All of a model lie in one partition, so the last on the log is the last here.
pub(crate) async fn probed(connection: &mut DbConnection, event: &ModelProbed) -> Result<(), StoreError> {
    let tokens = |tokens: Option<i64>| tokens.map(|tokens| tokens.to_string());
    sqlx::query(
        "INSERT INTO model_cards (provider, model, machine, context_tokens, usable_context_tokens, questions, valid_json, valid_tool_calls,
           prompt_tokens_per_s, tokens_per_s, measured_at)
         VALUES ($1, $2, $3, CAST($4 AS BIGINT), CAST($5 AS BIGINT), $6, $7, $8, CAST($9 AS DOUBLE PRECISION), CAST($10 AS DOUBLE PRECISION), $11)
         ON CONFLICT (provider, model, machine) DO UPDATE SET context_tokens = excluded.context_tokens,
           usable_context_tokens = excluded.usable_context_tokens, questions = excluded.questions, valid_json = excluded.valid_json,
           valid_tool_calls = excluded.valid_tool_calls, prompt_tokens_per_s = excluded.prompt_tokens_per_s,
           tokens_per_s = excluded.tokens_per_s, measured_at = excluded.measured_at",
    )
    .bind(storable(&event.provider))
    .bind(storable(&event.model))
    .bind(storable(&event.machine))
    // As text: see `number_text`.
    .bind(tokens(event.context_tokens))
    .bind(tokens(event.usable_context_tokens))
    .bind(event.questions)
    .bind(event.valid_json)
    .bind(event.valid_tool_calls)
    .bind(number_text(event.prompt_tokens_per_s))
    .bind(number_text(event.tokens_per_s))
    .bind(event.at)
    .execute(connection)
    .await?;
    Ok(())
}

fn view(found: &DbRow) -> Result<ModelCardView, StoreError> {
    Ok(ModelCardView {
        provider: found.try_get("provider")?,
        model: found.try_get("model")?,
        machine: found.try_get("machine")?,
        context_tokens: found.try_get("context_tokens")?,
        usable_context_tokens: found.try_get("usable_context_tokens")?,
        questions: found.try_get("questions")?,
        valid_json: found.try_get("valid_json")?,
        valid_tool_calls: found.try_get("valid_tool_calls")?,
        prompt_tokens_per_s: found.try_get("prompt_tokens_per_s")?,
        tokens_per_s: found.try_get("tokens_per_s")?,
        measured_at: Timestamp(found.try_get("measured_at")?),
    })
}

/// Cards, the newest first, at most [`MAX_CARDS`]; those of a provider or of a model where one is given.
pub async fn cards(sql: &Sql, provider: Option<&str>, model: Option<&str>) -> Result<Vec<ModelCardView>, StoreError> {
    let rows = sqlx::query(
        "SELECT * FROM model_cards
         WHERE (CAST($1 AS TEXT) IS NULL OR provider = $1) AND (CAST($2 AS TEXT) IS NULL OR model = $2)
         ORDER BY measured_at DESC, provider, model, machine LIMIT $3",
    )
    .bind(provider.map(storable))
    .bind(model.map(storable))
    .bind(MAX_CARDS)
    .fetch_all(sql.reader())
    .await
    .map_err(|error| StoreError::from(error).at(sql.path()))?;
    rows.iter().map(view).collect()
}

#[cfg(test)]
mod tests {
    use riverrun_schemas::finetune::FinetuneEvent;

    use super::*;
    use crate::read_models::testing::records;
    use crate::read_models::{Projected, apply, rebuild};

    fn probed(model: &str, machine: &str, valid_json: i64, at: i64) -> FinetuneEvent {
        let known = valid_json > 0;
        ModelProbed {
            provider: "local".into(),
            model: model.into(),
            machine: machine.into(),
            context_tokens: known.then_some(8_192),
            usable_context_tokens: known.then_some(2_048),
            questions: 4,
            valid_json,
            valid_tool_calls: 1,
            prompt_tokens_per_s: known.then_some(112.5),
            tokens_per_s: known.then_some(0.25),
            at,
        }
        .into()
    }

    #[tokio::test]
    async fn given_cards_when_a_model_is_measured_again_then_the_last_of_each_machine_counts_also_when_all_is_made_again()
     {
        let events = [
            probed("poet", "small", 4, 10),
            probed("poet", "large", 3, 20),
            probed("bard\0", "small", 0, 5),
            probed("poet", "small", 0, 30),
            probed("poet", "large", 2, 25),
        ];
        let folder = tempfile::tempdir().unwrap();
        let sql = Sql::open(folder.path().join("read.db")).await.unwrap();
        apply(&sql, &records(events.clone(), Projected::Finetune)).await.unwrap();
        let all = cards(&sql, None, None).await.unwrap();
        let shown: Vec<_> =
            all.iter().map(|card| (card.model.as_str(), card.machine.as_str(), card.valid_json)).collect();
        assert_eq!(shown, [("poet", "small", 0), ("poet", "large", 2), ("bard\u{fffd}", "small", 0)]);
        assert_eq!((all[0].context_tokens, all[0].tokens_per_s), (None, None), "what is not known any more is gone");
        assert_eq!((all[1].usable_context_tokens, all[1].prompt_tokens_per_s), (Some(2_048), Some(112.5)));
        assert_eq!(cards(&sql, Some("local"), Some("poet")).await.unwrap(), all[..2]);
        assert!(cards(&sql, Some("ollama"), Some("poet")).await.unwrap().is_empty());

        rebuild(&sql).await.unwrap();
        assert!(cards(&sql, None, None).await.unwrap().is_empty());
        apply(&sql, &records(events, Projected::Finetune)).await.unwrap();
        assert_eq!(cards(&sql, None, None).await.unwrap(), all);
    }
}
