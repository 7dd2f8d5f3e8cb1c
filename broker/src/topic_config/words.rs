//! What is said of settings besides their values: a sentence for people, and the broker's setting that a default comes from.

/// What a setting of a topic is for; none for names that are no settings.
pub(crate) fn documentation(name: &str) -> Option<&'static str> {
    Some(match name {
        "cleanup.policy" => {
            "What becomes of old records: delete removes whole segments by age and size, compact keeps the last record of each \
             key, both do both, and nothing keeps everything."
        }
        "compression.gzip.level" | "compression.lz4.level" | "compression.zstd.level" => {
            "A level of compression. It is taken and has no effect: each codec has its default."
        }
        "compression.type" => {
            "The codec in which batches are stored; producer keeps them as they were sent, uncompressed stores them plain."
        }
        "delete.retention.ms" => {
            "How long compaction keeps tombstones, and markers of transactions without records, once their segment is closed."
        }
        "file.delete.delay.ms" => "Taken without effect: files go when no reader has them open any more.",
        "flush.messages" | "flush.ms" => "Taken without effect: every record is synced before it is acknowledged.",
        "follower.replication.throttled.replicas" | "leader.replication.throttled.replicas" => {
            "Taken without effect: on a single node nothing is replicated."
        }
        "index.interval.bytes" => "Taken without effect: there is an index entry every 8 KiB of a segment.",
        "max.compaction.lag.ms" => "Age at which a record is compacted however little of the log is new.",
        "max.message.bytes" => "The largest batch that is taken, in bytes as it is stored.",
        "message.timestamp.after.max.ms" => {
            "How far the time of a record may lie ahead of the broker's clock; later ones are refused. Only where producers set \
             the time."
        }
        "message.timestamp.before.max.ms" => {
            "How far the time of a record may lie behind the broker's clock; earlier ones are refused. Only where producers set \
             the time."
        }
        "message.timestamp.type" => {
            "Whose time a record has: CreateTime that of its producer, LogAppendTime that of the broker when it came."
        }
        "min.cleanable.dirty.ratio" => {
            "The share of the closed segments that has to be new before they are compacted again."
        }
        "min.compaction.lag.ms" => "Age below which records are not compacted.",
        "min.insync.replicas" => "Taken without effect: the one replica is in sync.",
        "preallocate" => "Taken without effect: files grow as they are written.",
        "retention.bytes" => {
            "How many bytes a partition keeps before its oldest segments go, where the policy is to delete; -1 is no limit."
        }
        "retention.ms" => "How long records are kept, where the policy is to delete; -1 is for ever.",
        "segment.bytes" => "The size at which a segment file is closed. Retention and compaction work on closed ones.",
        "segment.index.bytes" => "Taken without effect: indexes are as large as their segments make them.",
        "segment.jitter.ms" => "Taken without effect: segments are closed when their time has come.",
        "segment.ms" => "The age at which a segment is closed although it is not full.",
        "unclean.leader.election.enable" => "Taken without effect: a single node has nobody to elect.",
        _ => return None,
    })
}

/// The setting of a broker that is the default of a topic's, as Apache Kafka calls it; none where it has no such one, or several.
pub(crate) fn broker_name(name: &str) -> Option<&'static str> {
    Some(match name {
        "cleanup.policy" => "log.cleanup.policy",
        "compression.gzip.level" => "compression.gzip.level",
        "compression.lz4.level" => "compression.lz4.level",
        "compression.type" => "compression.type",
        "compression.zstd.level" => "compression.zstd.level",
        "delete.retention.ms" => "log.cleaner.delete.retention.ms",
        "file.delete.delay.ms" => "log.segment.delete.delay.ms",
        "flush.messages" => "log.flush.interval.messages",
        "index.interval.bytes" => "log.index.interval.bytes",
        "max.compaction.lag.ms" => "log.cleaner.max.compaction.lag.ms",
        "max.message.bytes" => "message.max.bytes",
        "message.timestamp.after.max.ms" => "log.message.timestamp.after.max.ms",
        "message.timestamp.before.max.ms" => "log.message.timestamp.before.max.ms",
        "message.timestamp.type" => "log.message.timestamp.type",
        "min.cleanable.dirty.ratio" => "log.cleaner.min.cleanable.ratio",
        "min.compaction.lag.ms" => "log.cleaner.min.compaction.lag.ms",
        "min.insync.replicas" => "min.insync.replicas",
        "preallocate" => "log.preallocate",
        "retention.bytes" => "log.retention.bytes",
        "segment.bytes" => "log.segment.bytes",
        "segment.index.bytes" => "log.index.size.max.bytes",
        "unclean.leader.election.enable" => "unclean.leader.election.enable",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::super::all_settings;
    use super::*;

    #[test]
    fn given_every_setting_when_documentation_is_asked_for_then_there_is_a_sentence() {
        for setting in all_settings() {
            assert!(documentation(setting.name).is_some_and(|text| text.ends_with('.')), "{}", setting.name);
        }
        assert_eq!((documentation("no.such"), broker_name("no.such")), (None, None));
    }

    #[test]
    fn given_the_table_when_defaults_are_traced_then_only_these_come_from_no_one_setting_of_the_broker() {
        let none: Vec<&str> =
            all_settings().map(|setting| setting.name).filter(|name| broker_name(name).is_none()).collect();
        let expected = [
            "retention.ms",
            "segment.ms",
            "flush.ms",
            "follower.replication.throttled.replicas",
            "leader.replication.throttled.replicas",
            "segment.jitter.ms",
        ];
        assert_eq!(none, expected);
    }
}
