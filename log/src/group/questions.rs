//! What a member asks the broker beside its loop: lookups that block.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use rdkafka::consumer::{Consumer, StreamConsumer};
use rdkafka::{ClientConfig, Offset};

use super::lists::names;
use super::{AssignedPartition, Inner, OutOfRange};
use crate::context::Quiet;
use crate::error::LogError;
use crate::record::{StartAt, TopicPartition};
use crate::watermarks::{self, Bounds, QUERY_TIMEOUT};

/// What a question to the broker, asked beside the loop, was answered.
pub(super) enum Found {
    Assigned(Vec<AssignedPartition>),
    OutOfRange(Vec<OutOfRange>),
}

pub(super) enum Question {
    /// With what another client is made of, for a member that reads already: the broker may hold its connection until there
    /// is something to read, and each question about a partition would wait behind that.
    Assigned(Vec<TopicPartition>, Option<ClientConfig>),
    /// With a pause before.
    OutOfRange(HashMap<TopicPartition, i64>, Duration),
}

/// Asks until the broker answers; the member can do nothing without it.
pub(super) async fn answer(consumer: Arc<Inner>, question: Question) -> Result<Found, LogError> {
    if let Question::OutOfRange(_, pause) = &question {
        tokio::time::sleep(*pause).await;
    }
    let question = Arc::new(question);
    loop {
        let (asked, with) = (question.clone(), consumer.clone());
        let found = tokio::task::spawn_blocking(move || match asked.as_ref() {
            Question::Assigned(partitions, beside) => assigned(&with, partitions, beside.as_ref()).map(Found::Assigned),
            Question::OutOfRange(next, _) => out_of_range(&with, next).map(Found::OutOfRange),
        })
        .await
        .map_err(|_| LogError::Stopped("a lookup of offsets".to_owned()))?;
        match found {
            Err(error) if error.retryable() && !consumer.context().closing() => {
                tracing::warn!(error = %error, "can't look up offsets; trying again");
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
            done => return done,
        }
    }
}

fn assigned(
    consumer: &Inner,
    partitions: &[TopicPartition],
    beside: Option<&ClientConfig>,
) -> Result<Vec<AssignedPartition>, LogError> {
    let beside: Option<StreamConsumer<Quiet>> = beside
        .map(|settings| settings.create_with_context(Quiet))
        .transpose()
        .map_err(|error| LogError::kafka("create a client that asks for offsets", error))?;
    let bounds = |partition: &TopicPartition| match &beside {
        Some(beside) => watermarks::bounds(beside, partition),
        None => watermarks::bounds(consumer, partition),
    };
    let committed = consumer
        .committed_offsets(names(partitions), QUERY_TIMEOUT)
        .map_err(|error| LogError::kafka("ask for committed offsets", error))?;
    partitions
        .iter()
        .map(|partition| {
            let Bounds { low, high } = bounds(partition)?;
            let element = committed.find_partition(&partition.topic, partition.partition);
            let committed = match element.as_ref().map(|e| e.offset()) {
                Some(Offset::Offset(offset)) => Some(offset),
                _ => None,
            };
            let metadata = element.map(|e| e.metadata().to_owned()).unwrap_or_default();
            Ok(AssignedPartition { partition: partition.clone(), committed, metadata, low, high })
        })
        .collect()
}

fn out_of_range(consumer: &Inner, next: &HashMap<TopicPartition, i64>) -> Result<Vec<OutOfRange>, LogError> {
    let mut gaps = Vec::new();
    for (partition, wanted) in next {
        let bounds = watermarks::bounds(consumer, partition)?;
        if let (low, Some(wanted)) = watermarks::resolve(StartAt::Offset(*wanted), bounds) {
            gaps.push(OutOfRange { partition: partition.clone(), wanted, low, high: bounds.high });
        }
    }
    Ok(gaps)
}
