//! Settings of topics, read and changed; the broker's own are only read.

use std::collections::BTreeMap;
use std::time::Duration;

use kafka_protocol::ResponseError;
use kafka_protocol::messages::alter_configs_response::AlterConfigsResourceResponse as AlterAnswer;
use kafka_protocol::messages::describe_configs_request::DescribeConfigsResource;
use kafka_protocol::messages::describe_configs_response::{
    DescribeConfigsResourceResult, DescribeConfigsResult, DescribeConfigsSynonym,
};
use kafka_protocol::messages::incremental_alter_configs_response::AlterConfigsResourceResponse as IncrementalAnswer;
use kafka_protocol::messages::{
    AlterConfigsRequest, AlterConfigsResponse, DescribeConfigsRequest, DescribeConfigsResponse,
    IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse,
};

use super::offsets::MAX_METADATA;
use super::{Context, text};
use crate::groups::group::MAX_MEMBERS;
use crate::node::{NODE_ID, Refusal};
use crate::topic_config::words::{broker_name, documentation};
use crate::topic_config::{Setting, SettingType, all_settings};
use crate::topics::is_valid_name;

const TOPIC: i8 = 2;
const BROKER: i8 = 4;
/// A value set on the topic.
pub(super) const SOURCE_TOPIC: i8 = 1;
const SOURCE_STATIC: i8 = 4;
/// A default value.
pub(super) const SOURCE_DEFAULT: i8 = 5;

struct Value {
    name: &'static str,
    value: String,
    source: i8,
    kind: SettingType,
    read_only: bool,
    /// The setting of the broker that is its default, if there is one, and its value.
    default: Option<(&'static str, String)>,
    documentation: &'static str,
}

/// What is wanted besides values.
#[derive(Clone, Copy)]
struct Wanted {
    version: i16,
    synonyms: bool,
    documentation: bool,
}

pub(super) async fn describe_configs(
    context: &Context,
    version: i16,
    request: DescribeConfigsRequest,
) -> DescribeConfigsResponse {
    let wanted = Wanted { version, synonyms: request.include_synonyms, documentation: request.include_documentation };
    let results = request.resources.into_iter().map(|resource| {
        let result = DescribeConfigsResult::default()
            .with_resource_type(resource.resource_type)
            .with_resource_name(resource.resource_name.clone());
        match values(context, &resource) {
            Ok(values) => {
                let keys = resource.configuration_keys.as_deref().unwrap_or_default();
                let is_asked = |value: &Value| keys.is_empty() || keys.iter().any(|key| &**key == value.name);
                let configs = values.into_iter().filter(is_asked).map(|value| describe(value, wanted));
                result.with_configs(configs.collect())
            }
            Err(refusal) => {
                result.with_error_code(refusal.error.code()).with_error_message(Some(text(refusal.message)))
            }
        }
    });
    DescribeConfigsResponse::default().with_results(results.collect())
}

fn values(context: &Context, resource: &DescribeConfigsResource) -> Result<Vec<Value>, Refusal> {
    match resource.resource_type {
        TOPIC => {
            let name: &str = &resource.resource_name;
            if !is_valid_name(name) {
                let message =
                    format!("{name} is no name of a topic: 1 to 249 letters, digits, dots, underscores or hyphens");
                return Err(Refusal::new(ResponseError::InvalidTopicException, message));
            }
            let set = context.node.journal.lock().topics.get(name).map(|meta| meta.configs.clone());
            let set = set.ok_or(ResponseError::UnknownTopicOrPartition)?;
            let segment_bytes = context.node.config.segment_bytes;
            Ok(all_settings().map(|setting| topic_value(setting, &set, segment_bytes)).collect())
        }
        BROKER => {
            let name: &str = &resource.resource_name;
            // Without a name it is asked for what has been changed for all nodes while they ran, which nothing can be.
            if name.is_empty() {
                return Ok(Vec::new());
            }
            if name.parse() != Ok(NODE_ID) {
                return Err(Refusal::new(
                    ResponseError::InvalidRequest,
                    format!("there is no node {name}, only {NODE_ID}"),
                ));
            }
            Ok(broker_values(context))
        }
        other => {
            let message = format!("settings of resource type {other} are not known, only topics (2) and brokers (4)");
            Err(Refusal::new(ResponseError::InvalidRequest, message))
        }
    }
}

fn topic_value(setting: &'static Setting, set: &BTreeMap<String, String>, segment_bytes: u64) -> Value {
    let own = set.get(setting.name);
    let default = if setting.name == "segment.bytes" { segment_bytes.to_string() } else { setting.default.to_owned() };
    Value {
        name: setting.name,
        value: own.unwrap_or(&default).clone(),
        source: if own.is_some() { SOURCE_TOPIC } else { SOURCE_DEFAULT },
        kind: setting.kind,
        read_only: false,
        default: broker_name(setting.name).map(|name| (name, default)),
        documentation: documentation(setting.name).unwrap_or_default(),
    }
}

fn broker_values(context: &Context) -> Vec<Value> {
    let config = &context.node.config;
    let fixed = |name, value: String, kind, documentation| Value {
        name,
        value,
        source: SOURCE_STATIC,
        kind,
        read_only: true,
        default: None,
        documentation,
    };
    let (number, long) = (SettingType::Int, SettingType::Long);
    let (minutes, millis) =
        (|time: Duration| (time.as_secs() / 60).to_string(), |time: Duration| time.as_millis().to_string());
    vec![
        fixed(
            "auto.create.topics.enable",
            config.auto_create_topics.to_string(),
            SettingType::Boolean,
            "Whether asking for a topic, or producing to it, creates it.",
        ),
        fixed(
            "connections.max.idle.ms",
            millis(config.idle_timeout),
            long,
            "Time after which a connection without requests is closed.",
        ),
        fixed("default.replication.factor", "1".into(), number, "Replicas of a topic: there is one node."),
        fixed(
            "group.initial.rebalance.delay.ms",
            "0".into(),
            number,
            "How long the first members of a group wait for others.",
        ),
        fixed(
            "group.max.session.timeout.ms",
            millis(config.max_session_timeout),
            number,
            "The longest session of a member of a group.",
        ),
        fixed("group.max.size", MAX_MEMBERS.to_string(), number, "Most members of a group."),
        fixed(
            "group.min.session.timeout.ms",
            millis(config.min_session_timeout),
            number,
            "The shortest session of a member of a group.",
        ),
        fixed("log.dirs", config.data_dir.display().to_string(), SettingType::Text, "The data folder."),
        fixed(
            "log.segment.bytes",
            config.segment_bytes.to_string(),
            number,
            "The size at which a segment file is closed, for topics that say nothing.",
        ),
        fixed("max.connections", config.max_connections.to_string(), number, "Most connections of a listener."),
        fixed("node.id", NODE_ID.to_string(), number, "The number of the node."),
        fixed(
            "num.partitions",
            config.default_partitions.to_string(),
            number,
            "Partitions of a topic when nothing is said.",
        ),
        fixed(
            "offset.metadata.max.bytes",
            MAX_METADATA.to_string(),
            number,
            "The longest text beside a committed offset.",
        ),
        fixed(
            "offsets.retention.minutes",
            minutes(config.offsets_retention),
            number,
            "How long offsets of a group without members are kept.",
        ),
        fixed(
            "producer.id.expiration.ms",
            millis(config.producer_expiry),
            number,
            "Time after which a partition forgets a producer that does not write.",
        ),
        fixed("socket.request.max.bytes", config.max_frame_bytes.to_string(), number, "The largest request."),
        fixed(
            "transaction.max.timeout.ms",
            config.max_transaction_timeout_ms.to_string(),
            number,
            "The longest time that a transaction may stay open.",
        ),
        fixed(
            "transactional.id.expiration.ms",
            millis(config.transactional_id_expiry),
            number,
            "Time after which a transactional id that nobody uses is forgotten.",
        ),
    ]
}

fn describe(value: Value, wanted: Wanted) -> DescribeConfigsResourceResult {
    let mut known_as = Vec::new();
    if wanted.synonyms {
        let of = |name: &'static str, value: String, source| {
            DescribeConfigsSynonym::default().with_name(text(name)).with_value(Some(text(value))).with_source(source)
        };
        if value.source != SOURCE_DEFAULT {
            known_as.push(of(value.name, value.value.clone(), value.source));
        }
        known_as.extend(value.default.map(|(name, default)| of(name, default, SOURCE_DEFAULT)));
    }
    let described = DescribeConfigsResourceResult::default()
        .with_name(text(value.name))
        .with_value(Some(text(value.value)))
        .with_read_only(value.read_only)
        .with_config_source(value.source)
        .with_synonyms(known_as);
    if wanted.version < 3 {
        return described;
    }
    described
        .with_config_type(value.kind as i8)
        .with_documentation(wanted.documentation.then(|| text(value.documentation)))
}

async fn change(
    context: &Context,
    kind: i8,
    name: &str,
    validate_only: bool,
    change: impl FnOnce(&mut BTreeMap<String, String>) -> Result<(), Refusal>,
) -> Result<(), Refusal> {
    if kind != TOPIC {
        return Err(Refusal::new(
            ResponseError::InvalidRequest,
            "only settings of topics can be changed while the broker runs",
        ));
    }
    context.node.change_configs(name, validate_only, change).await
}

pub(super) async fn alter_configs(context: &Context, _: i16, request: AlterConfigsRequest) -> AlterConfigsResponse {
    let mut responses = Vec::with_capacity(request.resources.len());
    for resource in request.resources {
        // The old request replaces all settings at once.
        let new: BTreeMap<String, String> = resource
            .configs
            .iter()
            .filter_map(|config| Some((config.name.to_string(), config.value.as_ref()?.to_string())))
            .collect();
        let replace = |configs: &mut BTreeMap<String, String>| {
            *configs = new;
            Ok(())
        };
        let changed =
            change(context, resource.resource_type, &resource.resource_name, request.validate_only, replace).await;
        let answer = AlterAnswer::default()
            .with_resource_type(resource.resource_type)
            .with_resource_name(resource.resource_name);
        responses.push(match changed {
            Ok(()) => answer,
            Err(refusal) => {
                answer.with_error_code(refusal.error.code()).with_error_message(Some(text(refusal.message)))
            }
        });
    }
    AlterConfigsResponse::default().with_responses(responses)
}

pub(super) async fn incremental_alter_configs(
    context: &Context,
    _: i16,
    request: IncrementalAlterConfigsRequest,
) -> IncrementalAlterConfigsResponse {
    let mut responses = Vec::with_capacity(request.resources.len());
    for resource in request.resources {
        let steps: Vec<(String, i8, Option<String>)> = resource
            .configs
            .iter()
            .map(|config| {
                let value = config.value.as_ref().map(|value| value.to_string());
                (config.name.to_string(), config.config_operation, value)
            })
            .collect();
        let apply = |configs: &mut BTreeMap<String, String>| {
            steps.into_iter().try_for_each(|(name, operation, value)| apply_step(configs, name, operation, value))
        };
        let changed =
            change(context, resource.resource_type, &resource.resource_name, request.validate_only, apply).await;
        let answer = IncrementalAnswer::default()
            .with_resource_type(resource.resource_type)
            .with_resource_name(resource.resource_name);
        responses.push(match changed {
            Ok(()) => answer,
            Err(refusal) => {
                answer.with_error_code(refusal.error.code()).with_error_message(Some(text(refusal.message)))
            }
        });
    }
    IncrementalAlterConfigsResponse::default().with_responses(responses)
}

/// The words of a list, which may be empty.
fn words_of(list: &str) -> impl Iterator<Item = &str> {
    list.split(',').filter(|word| !word.is_empty())
}

/// Operations: 0 sets, 1 deletes, 2 appends to a list, 3 takes from a list.
fn apply_step(
    configs: &mut BTreeMap<String, String>,
    name: String,
    operation: i8,
    value: Option<String>,
) -> Result<(), Refusal> {
    let setting = all_settings().find(|setting| setting.name == name);
    let is_list = setting.is_some_and(|setting| setting.kind == SettingType::List);
    let default = setting.map_or("", |setting| setting.default);
    let current = || configs.get(&name).map_or(default, String::as_str);
    match (operation, value) {
        (0, Some(value)) => drop(configs.insert(name, value)),
        (1, _) => drop(configs.remove(&name)),
        (2, Some(value)) if is_list => {
            let mut words: Vec<&str> = words_of(current()).collect();
            words.extend(words_of(&value).filter(|word| !words_of(current()).any(|other| other == *word)));
            let joined = words.join(",");
            configs.insert(name, joined);
        }
        (3, Some(value)) if is_list => {
            let words: Vec<&str> =
                words_of(current()).filter(|word| !words_of(&value).any(|other| other == *word)).collect();
            let joined = words.join(",");
            configs.insert(name, joined);
        }
        _ => {
            let message = format!("operation {operation} is not possible on {name}");
            return Err(Refusal::new(ResponseError::InvalidConfig, message));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn given_a_list_when_words_are_added_and_taken_then_it_may_become_empty_and_full_again() {
        let mut configs = BTreeMap::new();
        let steps = [
            (3, "delete", ""),
            (3, "delete", ""),
            (2, "compact", "compact"),
            (2, "compact,delete", "compact,delete"),
            (3, "compact", "delete"),
        ];
        for (operation, word, left) in steps {
            apply_step(&mut configs, "cleanup.policy".into(), operation, Some(word.into())).unwrap();
            assert_eq!(configs["cleanup.policy"], left, "operation {operation} with {word}");
        }
        assert!(apply_step(&mut configs, "retention.ms".into(), 2, Some("1".into())).is_err(), "is no list");
    }
}
