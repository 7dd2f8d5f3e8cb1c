//! A broker by itself: `cargo run --example broker -- 127.0.0.1:9092 /tmp/broker-data [partitions]`.

use std::error::Error;
use std::net::SocketAddr;

use riverrun_broker::{Broker, BrokerConfig};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let filter = tracing_subscriber::EnvFilter::try_from_default_env().unwrap_or_else(|_| "info".into());
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).init();
    let mut arguments = std::env::args().skip(1);
    let (Some(listen), Some(data_dir)) = (arguments.next(), arguments.next()) else {
        return Err("usage: broker ADDRESS:PORT DATA_DIR [DEFAULT_PARTITIONS]".into());
    };
    let mut config = BrokerConfig::new(data_dir).listen(listen.parse::<SocketAddr>()?);
    if let Some(partitions) = arguments.next() {
        config.default_partitions = partitions.parse()?;
    }
    let broker = Broker::start(config).await?;
    eprintln!("broker listens on {}", broker.local_addr());
    tokio::signal::ctrl_c().await?;
    broker.shutdown().await;
    Ok(())
}
