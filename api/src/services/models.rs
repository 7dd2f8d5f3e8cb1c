//! What models are answered by, as rows.

use std::time::Instant;

use riverrun_models::{ModelError, Models, Presence, ProviderInfo, ProviderKind};
use riverrun_schemas::counted;

use super::{PATIENCE, ms};
use crate::wire::ServiceView;

/// The runtime, the models that are used where none is named, and hosted services.
pub(super) async fn rows(models: &Models) -> Vec<ServiceView> {
    let default = models.settings().default_provider();
    let mut rows = vec![runtime(models, default).await];
    rows.extend(default_models(models).await);
    rows.push(loaded(models));
    rows.extend(hosted(models));
    rows
}

/// The models that this process has loaded, and what they take of the memory that they may take.
fn loaded(models: &Models) -> ServiceView {
    let megabytes = |bytes: u64| bytes.div_ceil(1_000_000);
    let limit = match models.settings().memory_bytes {
        Some(bytes) => format!("{} MB (RIVERRUN_MODEL_MEMORY_MB)", megabytes(bytes)),
        None => "no limit (RIVERRUN_MODEL_MEMORY_MB)".to_owned(),
    };
    let loaded = models.local().loaded();
    let taken = loaded.iter().fold(0_u64, |sum, model| sum.saturating_add(model.bytes));
    let each: Vec<String> =
        loaded.iter().map(|model| format!("{} {} MB", model.name, megabytes(model.bytes))).collect();
    let detail = match each.as_slice() {
        [] => format!("none; {limit}"),
        _ => format!("{}; {} of {limit}", each.join(", "), megabytes(taken)),
    };
    ServiceView::up("loaded models", "local", false, detail)
}

/// A row for each hosted service whose key is set; one row in all when none is.
fn hosted(models: &Models) -> Vec<ServiceView> {
    let providers = models.providers().into_iter().filter(|provider| provider.kind == ProviderKind::Hosted);
    let (set, unset): (Vec<_>, Vec<_>) = providers.partition(|provider| provider.has_key == Some(true));
    if set.is_empty() {
        let names: Vec<&str> = unset.iter().map(|provider| provider.name.as_str()).collect();
        let detail = format!("no key is set for any of {}", names.join(", "));
        let fix = "set RIVERRUN_<PROVIDER>_API_KEY to use one; nothing here needs it";
        return vec![ServiceView::missing("hosted providers", "hosted", false, detail, fix)];
    }
    let row = |provider: ProviderInfo| {
        let name = format!("provider {}", provider.name);
        let row = match models.ready(&provider.name) {
            Ok(()) => ServiceView::up(&name, "hosted", false, "a key is set"),
            Err(error) => {
                let fix = error.hint().unwrap_or_else(|| "riverrun providers".to_owned());
                let lacks = match error {
                    ModelError::RuntimeDown { reason, .. } => reason,
                    other => other.to_string(),
                };
                ServiceView::missing(&name, "hosted", false, format!("a key is set, but {lacks}"), fix)
            }
        };
        provider.address.map_or(row.clone(), |address| row.at(address))
    };
    set.into_iter().map(row).collect()
}

/// The runtime of the default provider: this process, or a server.
async fn runtime(models: &Models, default: &str) -> ServiceView {
    let since = Instant::now();
    let provider = match models.provider(Some(default)) {
        Ok(provider) => provider,
        Err(error) => {
            return ServiceView::down("model runtime", default, true, error.to_string(), "riverrun providers");
        }
    };
    let failed = |reason: String, fix: String| {
        let row = ServiceView::down("model runtime", default, true, reason, fix);
        models.settings().runtime_base_url.as_ref().map_or(row.clone(), |address| row.at(address))
    };
    match tokio::time::timeout(PATIENCE, provider.probe()).await {
        Ok(Ok(report)) => {
            let mut row =
                ServiceView::up("model runtime", default, true, counted(report.models, "model")).took(ms(since));
            row.address = report.address;
            row.version = report.version;
            row
        }
        Ok(Err(error)) => failed(error.to_string(), error.hint().unwrap_or_else(|| "start the runtime".to_owned())),
        Err(_) => failed(
            format!("no answer within {} s", PATIENCE.as_secs()),
            "start the runtime, or check RIVERRUN_MODEL_RUNTIME_BASE_URL".to_owned(),
        ),
    }
}

/// A row for each model that is used where none is named. It speaks of its own runtime, which need not be that of the other.
async fn default_models(models: &Models) -> [ServiceView; 2] {
    let [chat, embed] = models.default_models();
    let (chat, embed) = tokio::join!(
        default_model(models, "chat model", models.default_chat_model(), chat),
        default_model(models, "embed model", models.default_embed_model(), embed)
    );
    [chat, embed]
}

/// The row of a model that the settings call `named` and its provider calls `model`.
async fn default_model(models: &Models, row: &str, named: &str, (provider, model): (&str, &str)) -> ServiceView {
    match tokio::time::timeout(PATIENCE, models.presence_at(provider, model)).await {
        Ok(Ok(Presence::Present { path })) => {
            ServiceView::up(row, provider, true, named).at(path.display().to_string())
        }
        Ok(Ok(Presence::Missing { fix })) => {
            ServiceView::missing(row, provider, true, format!("{named} is not there"), fix)
        }
        Ok(Err(error)) => {
            let fix = error.hint().unwrap_or_else(|| "riverrun models".to_owned());
            ServiceView::down(row, provider, true, format!("{named}: {error}"), fix)
        }
        Err(_) => {
            let reason = format!("{named}: no answer within {} s", PATIENCE.as_secs());
            ServiceView::down(row, provider, true, reason, "start the runtime")
        }
    }
}

#[cfg(test)]
mod tests {
    use riverrun_models::{ModelSettings, Secret};

    use super::*;
    use crate::wire::ServiceStatus;

    #[test]
    fn given_a_limit_of_memory_when_nothing_is_loaded_then_the_row_says_both() {
        let folder = tempfile::tempdir().unwrap();
        let settings = ModelSettings {
            cache_dir: folder.path().to_owned(),
            memory_bytes: Some(2_000_000_000),
            offline: true,
            ..ModelSettings::default()
        };
        let row = loaded(&Models::new(settings).unwrap());
        assert_eq!(
            (row.name.as_str(), row.detail.as_str()),
            ("loaded models", "none; 2000 MB (RIVERRUN_MODEL_MEMORY_MB)")
        );
        assert!(!row.required);
    }

    #[test]
    fn given_keys_of_hosted_services_when_one_lacks_what_a_call_needs_then_its_row_says_so_with_the_fix() {
        let folder = tempfile::tempdir().unwrap();
        let key = |name: &str| (name.to_owned(), Secret::new("canary").unwrap());
        let mut settings = ModelSettings {
            cache_dir: folder.path().to_owned(),
            keys: [key("azure"), key("bedrock"), key("openai")].into(),
            offline: true,
            ..ModelSettings::default()
        };
        let rows = hosted(&Models::new(settings.clone()).unwrap());
        let found = |rows: &[ServiceView], name: &str| {
            let row = rows.iter().find(|row| row.name == format!("provider {name}")).unwrap();
            (row.status, row.detail.clone(), row.fix.clone().unwrap_or_default())
        };
        let set = "a key is set".to_owned();
        assert_eq!(found(&rows, "openai"), (ServiceStatus::Up, set.clone(), String::new()));
        for (name, lacks, fix) in
            [("azure", "no address is set", "RIVERRUN_AZURE_BASE_URL"), ("bedrock", "no region is set", "AWS_REGION")]
        {
            let (status, detail, found) = found(&rows, name);
            assert_eq!((status, detail), (ServiceStatus::Missing, format!("a key is set, but {lacks}")), "{name}");
            assert!(found.contains(fix), "{name}: {found}");
        }
        settings.addresses.insert("azure".to_owned(), "https://club.openai.azure.com".to_owned());
        settings.aws.region = Some("eu-central-1".to_owned());
        let rows = hosted(&Models::new(settings).unwrap());
        for name in ["azure", "bedrock"] {
            assert_eq!(found(&rows, name), (ServiceStatus::Up, set.clone(), String::new()), "{name}");
        }
        assert!(!format!("{rows:?}").contains("canary"), "{rows:?}");
    }

    #[tokio::test]
    async fn given_models_of_two_runtimes_when_one_is_down_then_each_row_speaks_of_its_own() {
        let folder = tempfile::tempdir().unwrap();
        let settings = ModelSettings {
            cache_dir: folder.path().to_owned(),
            default_embed_model: "ollama/e".to_owned(),
            addresses: [("ollama".to_owned(), "http://127.0.0.1:1".to_owned())].into(),
            offline: true,
            ..ModelSettings::default()
        };
        let [chat, embed] = default_models(&Models::new(settings).unwrap()).await;
        assert_eq!((chat.name.as_str(), chat.kind.as_str()), ("chat model", "local"));
        assert!(!format!("{chat:?}").contains("127.0.0.1"), "{chat:?}");
        assert!(chat.fix.as_deref().unwrap().contains("riverrun models pull"), "{chat:?}");
        assert_eq!((embed.name.as_str(), embed.kind.as_str()), ("embed model", "ollama"));
        assert!(embed.detail.contains("ollama/e") && embed.detail.contains("127.0.0.1:1"), "{embed:?}");
    }
}
