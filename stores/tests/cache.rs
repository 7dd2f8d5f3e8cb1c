//! What every cache must do, on the embedded one always and on a Redis server where RIVERRUN_TEST_REDIS_URL names one,
//! and by TLS where RIVERRUN_TEST_REDIS_TLS_URL does, with the certificate of tests/data.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use riverrun_stores::cache::{BadRedis, MAX_VALUE_BYTES};
use riverrun_stores::{Cache, LocalCache, RedisCache, RedisConfig};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::aws_lc_rs;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

const LONG: Duration = Duration::from_secs(60);

fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name)
}

fn authority() -> Vec<u8> {
    std::fs::read(data("ca.pem")).unwrap()
}

fn open(url: &str, ca_pem: Option<Vec<u8>>) -> Result<RedisCache, BadRedis> {
    RedisCache::open(&RedisConfig { url: url.to_owned(), ca_pem })
}

fn named(variable: &str) -> Option<String> {
    std::env::var(variable).ok().filter(|url| !url.is_empty())
}

fn server() -> Option<RedisCache> {
    Some(open(&named("RIVERRUN_TEST_REDIS_URL")?, None).unwrap())
}

fn server_by_tls() -> Option<RedisCache> {
    Some(open(&named("RIVERRUN_TEST_REDIS_TLS_URL")?, Some(authority())).unwrap())
}

fn caches() -> Vec<Arc<dyn Cache>> {
    let mut caches: Vec<Arc<dyn Cache>> = vec![Arc::new(LocalCache::default())];
    let servers = [server(), server_by_tls()].into_iter().flatten();
    caches.extend(servers.map(|cache| Arc::new(cache) as Arc<dyn Cache>));
    caches
}

/// Tests share a server.
fn own(name: &str) -> String {
    static COUNT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
    format!("test:{}:{}:{name}", std::process::id(), COUNT.fetch_add(1, std::sync::atomic::Ordering::Relaxed))
}

/// A slow machine may take longer than a cache is waited for: the value is written until it is there.
async fn kept(cache: &dyn Cache, key: &str, value: &[u8], keep: Duration) -> bool {
    for _ in 0..50 {
        cache.put(key, value.to_vec(), keep).await;
        if cache.get(key).await.as_deref() == Some(value) {
            return true;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    false
}

#[tokio::test]
async fn given_values_when_they_are_kept_then_they_are_there_until_their_time_is_over() {
    for cache in caches() {
        let key = own("value");
        assert_eq!(cache.get(&key).await, None);
        for value in [&b"first"[..], b"", b"\x00\xff\r\n"] {
            assert!(kept(cache.as_ref(), &key, value, LONG).await, "{value:?}");
        }
        let brief = own("brief");
        cache.put(&brief, b"x".to_vec(), Duration::from_millis(1)).await;
        tokio::time::sleep(Duration::from_millis(20)).await;
        assert_eq!(cache.get(&brief).await, None);
        let large = own("large");
        cache.put(&large, vec![0; MAX_VALUE_BYTES + 1], LONG).await;
        assert_eq!(cache.get(&large).await, None);
        let status = cache.status().await;
        assert_eq!(status.trouble, None);
        assert_eq!(status.kind == "redis", status.version.is_some());
        assert_eq!(status.kind == "redis", cache.is_shared());
    }
}

#[tokio::test]
async fn given_buckets_that_are_shared_when_two_processes_take_then_they_have_no_more_than_one_would() {
    let (Some(one), Some(other)) = (server(), server()) else { return };
    let bucket = own("bucket");
    let (mut taken, mut waits) = (0, Vec::new());
    for _ in 0..40 {
        for cache in [&one, &other] {
            match cache.take(&bucket, 10).await {
                Some(Ok(())) => taken += 1,
                Some(Err(wait)) => waits.push(wait),
                None => tokio::time::sleep(Duration::from_millis(100)).await,
            }
        }
    }
    // One comes back in six seconds.
    assert!((1..=12).contains(&taken), "{taken}");
    assert!(!waits.is_empty() && waits.iter().all(|wait| *wait > Duration::ZERO && *wait <= Duration::from_secs(6)));
}

#[tokio::test]
async fn given_a_server_that_is_not_there_or_does_not_answer_when_it_is_asked_then_nothing_is_known_and_nothing_fails()
{
    // Takes connections and says nothing.
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let silent_url = format!("redis://127.0.0.1:{}", silent.local_addr().unwrap().port());
    for url in ["redis://:s3cret@127.0.0.1:1", &silent_url] {
        let cache = open(url, None).unwrap();
        for _ in 0..100 {
            cache.put("key", b"value".to_vec(), LONG).await;
            assert_eq!(cache.get("key").await, None);
            assert_eq!(cache.take("bucket", 10).await, None);
        }
        let status = cache.status().await;
        assert!(status.trouble.is_some() && status.version.is_none());
        assert!(!format!("{status:?}").contains("s3cret"));
    }
}

#[test]
fn given_an_address_that_is_none_when_it_is_opened_then_the_error_does_not_show_it() {
    for url in ["s3cret", "http://:s3cret@cache:6379", "redis://:s3cret@cache:port", "rediss://:s3cret@cache:port"] {
        let error = open(url, None).err().unwrap().to_string();
        assert!(!error.contains("s3cret"), "{error}");
    }
    assert!(!format!("{:?}", RedisConfig { url: "redis://:s3cret@cache".into(), ca_pem: None }).contains("s3cret"));
}

#[test]
fn given_authorities_that_can_not_be_used_when_it_is_opened_then_they_are_refused() {
    let error = open("redis://:s3cret@cache", Some(authority())).err().unwrap();
    assert_eq!(error, BadRedis::AuthoritiesWithoutTls);
    let broken = b"-----BEGIN CERTIFICATE-----\n!\n-----END CERTIFICATE-----\n".to_vec();
    let error = open("rediss://:s3cret@cache", Some(broken)).err().unwrap();
    assert!(matches!(error, BadRedis::Authorities { .. }), "{error}");
    assert!(!error.to_string().contains("s3cret"), "{error}");
}

/// A listener with the certificate of tests/data; whether the first that comes trusts it.
async fn is_trusted(listener: TcpListener) -> bool {
    let chain = CertificateDer::pem_file_iter(data("server.pem")).unwrap().collect::<Result<Vec<_>, _>>().unwrap();
    let key = PrivateKeyDer::from_pem_file(data("server-key.pem")).unwrap();
    let config = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .and_then(|builder| builder.with_no_client_auth().with_single_cert(chain, key))
        .unwrap();
    let (socket, _) = listener.accept().await.unwrap();
    TlsAcceptor::from(Arc::new(config)).accept(socket).await.is_ok()
}

#[tokio::test]
async fn given_a_server_with_tls_when_it_is_asked_then_it_is_trusted_by_its_authority_alone() {
    for (ca_pem, trusted) in [(Some(authority()), true), (None, false)] {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("rediss://127.0.0.1:{}", listener.local_addr().unwrap().port());
        let cache = open(&url, ca_pem).unwrap();
        let seen = tokio::spawn(tokio::time::timeout(LONG, is_trusted(listener)));
        // It speaks TLS and nothing else: no answer comes.
        let status = cache.status().await;
        assert!(status.trouble.is_some() && status.version.is_none(), "{status:?}");
        assert_eq!(status.address.as_deref(), Some(url.as_str()));
        assert_eq!(seen.await.unwrap(), Ok(trusted));
    }
}
