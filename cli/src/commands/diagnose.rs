//! `riverrun diagnose`.

use riverrun_api::services;
use riverrun_api::wire::{Diagnosis, HealthStatus, ServiceStatus, ServiceView};

use crate::error::{CliError, Exit};
use crate::host::{self, Connection, Reached};
use crate::output::{Output, table};
use crate::settings::Settings;

/// Asks a running server, or starts what a command would start: what does not start is a row too.
pub async fn run(settings: &Settings, output: Output) -> Result<(), CliError> {
    let diagnosis = match host::reach(settings, "diagnose").await? {
        Reached::Connected(connection) => {
            let diagnosis = ask(&connection).await;
            connection.close().await;
            diagnosis?
        }
        Reached::NotStarted(not) => {
            let core = host::core(settings)?;
            let fix = not.error.hint.unwrap_or_else(|| "check the data folder".to_owned());
            let down = ServiceView::down(not.service, "needed by every command", true, not.error.message, fix);
            let address = settings.kafka_brokers.clone().filter(|_| not.service == "broker");
            let mut services = vec![ServiceView { address, ..down }];
            services.extend(services::light(&core).await);
            Diagnosis { status: HealthStatus::of(&services), services }
        }
    };
    output.show(&diagnosis, |diagnosis| {
        table(
            ["service", "status", "kind", "needed", "address", "version", "ms", "detail", "fix"],
            diagnosis.services.iter().map(row).collect(),
            "",
        )
    })?;
    let lacking: Vec<&str> = diagnosis
        .services
        .iter()
        .filter(|service| service.required && service.status != ServiceStatus::Up)
        .map(|service| service.name.as_str())
        .collect();
    if lacking.is_empty() {
        return Ok(());
    }
    let fix = diagnosis
        .services
        .iter()
        .find(|service| service.required && service.status != ServiceStatus::Up)
        .and_then(|service| service.fix.clone());
    Err(CliError::new(Exit::ServiceDown, format!("not there: {}", lacking.join(", "))).maybe_hint(fix))
}

async fn ask(connection: &Connection) -> Result<Diagnosis, CliError> {
    connection.client.get("/diagnose").await
}

fn row(service: &ServiceView) -> [String; 9] {
    let status = match service.status {
        ServiceStatus::Up => "OK",
        ServiceStatus::Down => "DOWN",
        ServiceStatus::Missing => "MISSING",
    };
    let needed = if service.required { "required" } else { "optional" };
    [
        service.name.clone(),
        status.to_owned(),
        service.kind.clone(),
        needed.to_owned(),
        service.address.clone().unwrap_or_default(),
        service.version.clone().unwrap_or_default(),
        service.latency_ms.map(|ms| ms.to_string()).unwrap_or_default(),
        service.detail.clone(),
        service.fix.clone().unwrap_or_default(),
    ]
}
