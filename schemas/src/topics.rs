//! The topics, read from `deploy/topics.toml` at build time: the same list that creates them anywhere else.

use std::sync::LazyLock;

use serde::Deserialize;

const LIST: &str = include_str!("../../deploy/topics.toml");

/// A topic that riverrun speaks on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Topic {
    /// What runs are asked to do.
    AgentCommands,
    /// What happened in runs.
    AgentEvents,
    /// What is to be read into collections.
    IngestCommands,
    /// What became of it.
    IngestEvents,
    /// Chunks to be embedded.
    IngestChunks,
    /// Chunks with vectors, to be indexed.
    IngestEmbeddings,
    /// What was said in conversations, and what was made of it.
    MemoryEvents,
    /// What projects are asked to do.
    ProjectsCommands,
    /// What happened to projects.
    ProjectsEvents,
    /// Text as models write it.
    Tokens,
    /// Calls of tools that any program may serve.
    ToolsCalls,
    /// Their answers.
    ToolsResults,
    /// Documents that others publish.
    Documents,
    /// Trainings that are asked for.
    FinetuneCommands,
    /// Datasets, what happens in trainings, and the models that came out.
    FinetuneEvents,
    /// Canvases that are kept on the server.
    Canvases,
}

impl Topic {
    /// Every topic, in the order of the list.
    pub const ALL: [Topic; 16] = [
        Topic::AgentCommands,
        Topic::AgentEvents,
        Topic::IngestCommands,
        Topic::IngestEvents,
        Topic::IngestChunks,
        Topic::IngestEmbeddings,
        Topic::MemoryEvents,
        Topic::ProjectsCommands,
        Topic::ProjectsEvents,
        Topic::Tokens,
        Topic::ToolsCalls,
        Topic::ToolsResults,
        Topic::Documents,
        Topic::FinetuneCommands,
        Topic::FinetuneEvents,
        Topic::Canvases,
    ];

    /// The name on the broker.
    pub const fn name(self) -> &'static str {
        match self {
            Topic::AgentCommands => "riverrun.agent.commands",
            Topic::AgentEvents => "riverrun.agent.events",
            Topic::IngestCommands => "riverrun.ingest.commands",
            Topic::IngestEvents => "riverrun.ingest.events",
            Topic::IngestChunks => "riverrun.ingest.chunks",
            Topic::IngestEmbeddings => "riverrun.ingest.embeddings",
            Topic::MemoryEvents => "riverrun.memory.events",
            Topic::ProjectsCommands => "riverrun.projects.commands",
            Topic::ProjectsEvents => "riverrun.projects.events",
            Topic::Tokens => "riverrun.tokens",
            Topic::ToolsCalls => "riverrun.tools.calls",
            Topic::ToolsResults => "riverrun.tools.results",
            Topic::Documents => "riverrun.documents",
            Topic::FinetuneCommands => "riverrun.finetune.commands",
            Topic::FinetuneEvents => "riverrun.finetune.events",
            Topic::Canvases => "riverrun.canvases",
        }
    }

    /// The topic of that name, if it is one of ours.
    pub fn by_name(name: &str) -> Option<Topic> {
        Topic::ALL.into_iter().find(|topic| topic.name() == name)
    }

    /// Where records of this topic go that cannot be handled.
    pub fn dead_letters(self) -> String {
        format!("{}.dlq", self.name())
    }

    /// Partitions and retention.
    pub fn spec(self) -> &'static TopicSpec {
        SPECS
            .iter()
            .find(|spec| spec.name == self.name())
            .unwrap_or_else(|| unreachable!("a test holds topics.toml and Topic together"))
    }
}

/// How a topic is created.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TopicSpec {
    /// The name on the broker.
    pub name: String,
    /// Number of partitions.
    pub partitions: i32,
    /// How long records stay; -1 for ever.
    pub retention_hours: i64,
}

impl TopicSpec {
    /// Kafka's `retention.ms`: milliseconds, -1 for ever.
    pub fn retention_ms(&self) -> i64 {
        if self.retention_hours < 0 { -1 } else { self.retention_hours * 3_600_000 }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct List {
    dlq_retention_hours: i64,
    topic: Vec<TopicSpec>,
}

static SPECS: LazyLock<Vec<TopicSpec>> = LazyLock::new(|| {
    let list: List =
        toml::from_str(LIST).unwrap_or_else(|error| unreachable!("deploy/topics.toml is checked by a test: {error}"));
    let dead = list.topic.iter().map(|topic| TopicSpec {
        name: format!("{}.dlq", topic.name),
        partitions: 1,
        retention_hours: list.dlq_retention_hours,
    });
    list.topic.iter().cloned().chain(dead).collect()
});

/// Every topic to create, dead letters included.
pub fn all_specs() -> &'static [TopicSpec] {
    &SPECS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_and_the_type_name_the_same_topics() {
        let listed: Vec<_> = all_specs().iter().map(|s| s.name.as_str()).filter(|n| !n.ends_with(".dlq")).collect();
        let typed: Vec<_> = Topic::ALL.iter().map(|t| t.name()).collect();
        assert_eq!(listed, typed);
        assert_eq!(all_specs().len(), 2 * Topic::ALL.len());
    }

    #[test]
    fn commands_and_events_of_one_context_are_co_partitioned() {
        assert_eq!(Topic::AgentCommands.spec().partitions, Topic::AgentEvents.spec().partitions);
        assert_eq!(Topic::IngestCommands.spec().partitions, Topic::IngestEvents.spec().partitions);
        assert_eq!(Topic::ProjectsCommands.spec().partitions, Topic::ProjectsEvents.spec().partitions);
    }
}
