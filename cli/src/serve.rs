//! `riverrun serve`: the stack, and the API in front of it, until a signal.

use std::future::IntoFuture;
use std::net::SocketAddr;

use clap::Args;
use riverrun_api::app;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::error::{CliError, Exit};
use crate::host::{self, Hosted, Hosting};
use crate::lock::Owner;
use crate::output::tell;
use crate::settings::Settings;
use crate::shared::{self, Shared};
use crate::signals::Signals;
use crate::start_pages;

/// Options of `serve`.
#[derive(Debug, Args)]
pub struct ServeArgs {
    /// Answer and stream only: no worker runs here, and every store is a server
    #[arg(long)]
    pub no_workers: bool,
    /// Host the log nevertheless, on RIVERRUN_BROKER_PORT: other processes name it by RIVERRUN_KAFKA_BROKERS
    #[arg(long, requires = "no_workers")]
    pub host_log: bool,
}

/// Serves until a signal. A second one ends everything at once.
pub async fn serve(args: ServeArgs, settings: &Settings) -> Result<(), CliError> {
    if args.no_workers {
        check_servers(settings, args.host_log)?;
    }
    settings.check_bind()?;
    let mut signals = Signals::listen()?;
    let lock = host::own_for_server(settings).await?;
    let listener = listen(settings).await?;
    let address = listener.local_addr()?;
    let core = host::server_core(settings)?;
    let started = tokio::select! {
        started = host::host(settings, core, lock, Hosting { command: host::SERVE, any_port: false, workers: !args.no_workers }) => started,
        () = signals.next() => return Err(CliError::interrupted()),
    };
    let hosted = started.map_err(|not| not.error)?;
    tell_others(settings, &hosted, address)?;
    tell(&format!(
        "riverrun {} is ready: {} · Kafka {} · data {}",
        env!("CARGO_PKG_VERSION"),
        url(settings, address),
        hosted.stack.log().brokers,
        settings.data_dir.display()
    ));
    start_pages::give_back_soon();
    let stop = CancellationToken::new();
    let stopping = stop.clone();
    let server = axum::serve(listener, app(hosted.stack.state().clone()).into_make_service())
        .with_graceful_shutdown(async move { stopping.cancelled().await });
    let server = tokio::spawn(server.into_future());
    tokio::select! {
        () = signals.next() => tell("riverrun stops; a second signal ends it at once"),
        () = ended(&server) => {}
    }
    stop.cancel();
    let Hosted { stack, lock } = hosted;
    let drained = tokio::select! {
        () = stack.stop() => true,
        () = signals.next() => false,
    };
    server.abort();
    drop(lock);
    if drained { Ok(()) } else { Err(CliError::interrupted()) }
}

/// A process without workers reads what others write: none of it may be embedded, for then it is in another process. The log may be
/// in this one, where that was asked for.
fn check_servers(settings: &Settings, host_log: bool) -> Result<(), CliError> {
    if let (true, Some(brokers)) = (host_log, &settings.kafka_brokers) {
        let message =
            format!("serve --host-log would host the log, and RIVERRUN_KAFKA_BROKERS says that it is at {brokers}");
        return Err(
            CliError::new(Exit::Usage, message).hint("unset RIVERRUN_KAFKA_BROKERS here, or leave --host-log out")
        );
    }
    let needed: &[Shared] = if host_log { &Shared::ALL[1..] } else { Shared::ALL };
    let missing = shared::missing(needed, settings);
    if missing.is_empty() {
        return Ok(());
    }
    let (what, settings): (Vec<&str>, Vec<&str>) = missing.into_iter().unzip();
    let message =
        format!("serve --no-workers would look for {} in its own data folder, where no worker writes", what.join(", "));
    Err(CliError::new(Exit::Usage, message).hint(format!("set {}, or leave --no-workers out", settings.join(", "))))
}

/// Waits for a server that ends by itself, which it does only when its socket is lost.
async fn ended<T>(server: &tokio::task::JoinHandle<T>) {
    while !server.is_finished() {
        tokio::time::sleep(std::time::Duration::from_secs(1)).await;
    }
}

async fn listen(settings: &Settings) -> Result<TcpListener, CliError> {
    let (host, port) = (settings.api_host.as_str(), settings.api_port);
    TcpListener::bind((host, port)).await.map_err(|error| {
        let message = format!("the API can't listen on {host}:{port} (RIVERRUN_API_HOST, RIVERRUN_API_PORT): {error}");
        let fix = if error.kind() == std::io::ErrorKind::AddrInUse {
            format!("end what listens there (ss -ltnp 'sport = :{port}'), or set RIVERRUN_API_PORT to another port")
        } else {
            "set RIVERRUN_API_HOST to an address of this machine".to_owned()
        };
        CliError::new(Exit::Failed, message).hint(fix)
    })
}

/// Where the API is for commands on this machine.
fn url(settings: &Settings, address: SocketAddr) -> String {
    if address.ip().is_unspecified() {
        return format!("http://127.0.0.1:{}", address.port());
    }
    // The name as it was given: an IPv6 address brings its brackets along.
    match settings.api_host.parse::<std::net::IpAddr>() {
        Ok(_) => format!("http://{address}"),
        Err(_) => format!("http://{}:{}", settings.api_host, address.port()),
    }
}

fn tell_others(settings: &Settings, hosted: &Hosted, address: SocketAddr) -> Result<(), CliError> {
    hosted.lock.tell(&Owner {
        pid: std::process::id(),
        command: host::SERVE.to_owned(),
        api_url: Some(url(settings, address)),
        brokers: hosted.stack.log().brokers.clone(),
        needs_token: settings.wants_tokens(),
    })
}
