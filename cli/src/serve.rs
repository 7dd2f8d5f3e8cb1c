//! `riverrun serve`: the stack, and the API in front of it, until a signal.

use std::future::IntoFuture;
use std::net::SocketAddr;

use riverrun_api::app;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::error::{CliError, Exit};
use crate::host::{self, Hosted};
use crate::lock::Owner;
use crate::output::tell;
use crate::settings::Settings;
use crate::signals::Signals;

/// Serves until a signal. A second one ends everything at once.
pub async fn serve(settings: &Settings) -> Result<(), CliError> {
    settings.check_bind()?;
    let mut signals = Signals::listen()?;
    let lock = host::own_for_server(settings).await?;
    let listener = listen(settings).await?;
    let address = listener.local_addr()?;
    let core = host::server_core(settings)?;
    let started = tokio::select! {
        started = host::host(settings, core, lock, "serve", false) => started,
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
    let stop = CancellationToken::new();
    let stopping = stop.clone();
    let server = axum::serve(listener, app(hosted.stack.state().clone()))
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
        command: "serve".to_owned(),
        api_url: Some(url(settings, address)),
        brokers: hosted.stack.log().brokers.clone(),
        needs_token: settings.wants_tokens(),
    })
}
