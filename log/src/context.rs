use rdkafka::ClientContext;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::consumer::ConsumerContext;
use rdkafka::error::KafkaError;

/// Sends what librdkafka says to `tracing`.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Quiet;

impl ClientContext for Quiet {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        log(level, facility, message);
    }

    fn error(&self, error: KafkaError, reason: &str) {
        tracing::debug!(error = %error, reason, "kafka client reports an error");
    }
}

impl ConsumerContext for Quiet {}

/// librdkafka is loud while a broker is away; its own callers report what matters, so it speaks one level lower here.
pub(crate) fn log(level: RDKafkaLogLevel, facility: &str, message: &str) {
    match level {
        RDKafkaLogLevel::Emerg | RDKafkaLogLevel::Alert | RDKafkaLogLevel::Critical => {
            tracing::error!(facility, "kafka client: {message}")
        }
        RDKafkaLogLevel::Error | RDKafkaLogLevel::Warning => tracing::debug!(facility, "kafka client: {message}"),
        RDKafkaLogLevel::Notice | RDKafkaLogLevel::Info | RDKafkaLogLevel::Debug => {
            tracing::trace!(facility, "kafka client: {message}")
        }
    }
}
