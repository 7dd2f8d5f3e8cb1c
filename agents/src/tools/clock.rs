//! The date and time, anywhere.

use async_trait::async_trait;
use chrono::{DateTime, Utc};
use chrono_tz::Tz;
use riverrun_schemas::agent::ToolEffect;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{Tool, ToolContext, ToolError, ToolManifest, parse, schema_of};

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Arguments {
    /// IANA time zone such as "Europe/Berlin"; UTC when left out
    #[serde(default)]
    #[schemars(length(max = 64))]
    timezone: Option<String>,
}

pub(super) struct Clock;

fn read(now: DateTime<Utc>, timezone: Option<&str>) -> Result<Value, ToolError> {
    let zone: Tz = match timezone.filter(|zone| !zone.trim().is_empty()) {
        None => Tz::UTC,
        Some(zone) => zone.trim().parse().map_err(|_| {
            ToolError::Arguments(format!("timezone {zone:?} is not an IANA name such as Europe/Berlin or UTC"))
        })?,
    };
    let local = now.with_timezone(&zone);
    Ok(json!({
        "date": local.format("%Y-%m-%d").to_string(),
        "time": local.format("%H:%M:%S").to_string(),
        "weekday": local.format("%A").to_string(),
        "timezone": zone.name(),
        "rfc3339": local.to_rfc3339_opts(chrono::SecondsFormat::Secs, true),
    }))
}

#[async_trait]
impl Tool for Clock {
    fn manifest(&self) -> ToolManifest {
        ToolManifest::builtin(
            "clock",
            "Tells the current date, time and weekday. Use it whenever the task depends on today or now.",
            schema_of::<Arguments>(),
            ToolEffect::None,
        )
    }

    async fn call(&self, arguments: Value, _: &ToolContext) -> Result<Value, ToolError> {
        let Arguments { timezone } = parse(arguments)?;
        read(Utc::now(), timezone.as_deref())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_is_told_in_the_zone_asked_for() {
        let now = DateTime::parse_from_rfc3339("2026-07-01T23:30:00Z").unwrap().to_utc();
        assert_eq!(read(now, None).unwrap()["rfc3339"], "2026-07-01T23:30:00Z");
        let berlin = read(now, Some("Europe/Berlin")).unwrap();
        assert_eq!((&berlin["date"], &berlin["weekday"]), (&json!("2026-07-02"), &json!("Thursday")));
        assert!(read(now, Some("Mars/Olympus")).unwrap_err().to_string().contains("Mars/Olympus"));
    }
}
