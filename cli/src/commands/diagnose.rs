//! `riverrun diagnose`.

use riverrun_api::services;
use riverrun_api::wire::{Diagnosis, HealthStatus, ServiceStatus, ServiceView};

use crate::error::{CliError, Exit};
use crate::host::{self, Connection, Reached};
use crate::lock::Owner;
use crate::output::{Output, table};
use crate::settings::Settings;

/// Asks a running server, or starts what a command would start: what does not start is a row too. Where another command has the data
/// folder, that is a row, and the rest is asked.
pub async fn run(settings: &Settings, output: Output) -> Result<(), CliError> {
    let diagnosis = match host::reach_at_once(settings, "diagnose").await? {
        Ok(Reached::Connected(connection)) => {
            let diagnosis = ask(&connection).await;
            connection.close().await;
            diagnosis?
        }
        Ok(Reached::NotStarted(not)) => {
            let fix = not.error.hint.unwrap_or_else(|| "check the data folder".to_owned());
            let down = ServiceView::down(not.service, "needed by every command", true, not.error.message, fix);
            let address = match not.service {
                "broker" => settings.kafka_brokers.clone(),
                host::REMOTE => settings.server.as_ref().map(|server| server.url.clone()),
                _ => None,
            };
            without_stack(settings, ServiceView { address, ..down }).await?
        }
        Err(owner) => without_stack(settings, in_use(settings, &owner)).await?,
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

/// What can be told beside a stack that is not ours to ask.
async fn without_stack(settings: &Settings, why: ServiceView) -> Result<Diagnosis, CliError> {
    let core = host::core(settings)?;
    let mut services = vec![why];
    services.extend(services::light(&core).await);
    Ok(Diagnosis { status: HealthStatus::of(&services), services })
}

/// The row of a folder that another command has: it hosts log and stores for itself, and nothing is wrong with that.
fn in_use(settings: &Settings, owner: &Owner) -> ServiceView {
    let detail = format!(
        "riverrun {} (process {}) has it, with log and stores, which were not asked; ask again when it has ended, or let a \
         `riverrun serve` have them for all",
        owner.command, owner.pid
    );
    let row = ServiceView::up("data folder", "in use", true, detail);
    ServiceView { address: Some(settings.data_dir.display().to_string()), ..row }
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
