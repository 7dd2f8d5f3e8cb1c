use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use super::*;

/// Every way to write an address that is not of the public internet, and every kind of such address.
const INSIDE: &[&str] = &[
    "http://127.0.0.1/",
    "http://127.0.0.1:8000/runs",
    "http://127.1/",
    "http://127.0.1/",
    "http://2130706433/",
    "http://0x7f000001/",
    "http://0x7f.1/",
    "http://0x7f.0x0.0x0.0x1/",
    "http://017700000001/",
    "http://0177.0.0.1/",
    "http://127.0.0.1./",
    "http://127%2e0%2e0%2e1/",
    "http://１２７.0.0.1/",
    "http://①②⑦.⓪.⓪.①/",
    "http://127。0。0。1/",
    "http://0/",
    "http://0.0.0.0/",
    "http://[::]/",
    "http://[::1]/",
    "http://[0:0:0:0:0:0:0:1]/",
    "http://[::ffff:127.0.0.1]/",
    "http://[::ffff:7f00:1]/",
    "http://[0:0:0:0:0:ffff:10.0.0.1]/",
    "http://[::127.0.0.1]/",
    "http://[64:ff9b::127.0.0.1]/",
    "http://[64:ff9b::a9fe:a9fe]/",
    "http://[64:ff9b:1::7f00:1]/",
    "http://[2002:7f00:1::]/",
    "http://[2002:a9fe:a9fe::1]/",
    "http://[::ffff:0:127.0.0.1]/",
    "http://[2001:0:53aa:64c:0:0:80ff:fffe]/",
    "http://[fe80::5efe:7f00:1]/",
    "http://169.254.169.254/latest/meta-data/",
    "http://2852039166/latest/meta-data/",
    "http://[fd00:ec2::254]/latest/meta-data/",
    "http://100.100.100.200/",
    "http://168.63.129.16/",
    "http://10.0.0.1/",
    "http://10.255.255.255/",
    "http://172.16.0.1/",
    "http://172.31.255.255/",
    "http://192.168.0.1/",
    "http://169.254.0.1/",
    "http://100.64.0.1/",
    "http://100.127.255.255/",
    "http://192.0.0.1/",
    "http://192.0.2.1/",
    "http://198.18.0.1/",
    "http://198.51.100.1/",
    "http://203.0.113.1/",
    "http://224.0.0.1/",
    "http://239.255.255.255/",
    "http://240.0.0.1/",
    "http://255.255.255.255/",
    "http://[fc00::1]/",
    "http://[fd00::1]/",
    "http://[fe80::1]/",
    "http://[fec0::1]/",
    "http://[ff02::1]/",
    "http://[2001:db8::1]/",
    "http://[100::1]/",
];

const OUTSIDE: &[&str] = &[
    "http://1.1.1.1/",
    "http://8.8.8.8/",
    "http://172.15.0.1/",
    "http://172.32.0.1/",
    "http://100.63.0.1/",
    "http://100.128.0.1/",
    "http://192.0.1.1/",
    "http://[2606:4700:4700::1111]/",
    "http://[2002:808:808::1]/",
    "http://[64:ff9b::8.8.8.8]/",
    "https://example.org/a?b#c",
];

#[test]
fn given_an_address_in_any_notation_when_it_is_checked_then_only_the_public_internet_passes() {
    let policy = WebPolicy::default();
    for url in INSIDE {
        let error = policy.check_url(url).expect_err(url);
        assert!(matches!(error, WebError::Address { .. }), "{url}: {error}");
    }
    for url in OUTSIDE {
        assert!(policy.check_url(url).is_ok(), "{url}: {:?}", policy.check_url(url));
    }
}

#[test]
fn given_other_schemes_credentials_and_nonsense_when_they_are_checked_then_each_is_refused_by_its_rule() {
    let policy: WebPolicy = "127.0.0.0/8".parse().unwrap();
    for (url, code) in [
        ("file:///etc/passwd", "scheme_not_allowed"),
        ("gopher://127.0.0.1:6379/_INFO", "scheme_not_allowed"),
        ("dict://127.0.0.1:11211/stats", "scheme_not_allowed"),
        ("ftp://example.org/x", "scheme_not_allowed"),
        ("ldap://example.org/", "scheme_not_allowed"),
        ("ws://example.org/", "scheme_not_allowed"),
        ("jar:http://example.org!/x", "scheme_not_allowed"),
        ("javascript:alert(1)", "scheme_not_allowed"),
        ("data:text/html,x", "scheme_not_allowed"),
        ("http://user@127.0.0.1:80/", "credentials_in_url"),
        ("http://user:canary@example.org/", "credentials_in_url"),
        ("http://:canary@example.org/", "credentials_in_url"),
        ("http://example.org@127.0.0.1/", "credentials_in_url"),
        ("", "bad_url"),
        ("example.org", "bad_url"),
        ("//example.org", "bad_url"),
        ("http://", "bad_url"),
        ("http://[::1", "bad_url"),
        ("http://999.1.1.1/", "bad_url"),
        ("http://a b/", "bad_url"),
        (&format!("http://example.org/{}", "a".repeat(9_000)), "bad_url"),
    ] {
        let error = policy.check_url(url).expect_err(url);
        assert_eq!(error.code(), code, "{url}: {error}");
        assert!(!error.to_string().contains("canary"), "{error}");
    }
}

#[test]
fn given_an_allow_list_when_it_is_read_then_it_opens_what_it_names_and_nothing_beside() {
    let policy: WebPolicy = "127.0.0.1, 10.1.0.0/16, fd00:1::/32, wiki.corp, [::1]".parse().unwrap();
    for url in ["http://127.0.0.1:1/", "http://10.1.2.3/", "http://[fd00:1::5]/", "http://[::1]/"] {
        assert!(policy.check_url(url).is_ok(), "{url}");
    }
    for url in ["http://127.0.0.2/", "http://10.2.0.1/", "http://[fd00:2::5]/", "http://169.254.169.254/"] {
        assert!(policy.check_url(url).is_err(), "{url}");
    }
    assert!(policy.check_address("wiki.corp", "10.9.9.9".parse().unwrap()).is_ok());
    assert!(policy.check_address("WIKI.corp.", "10.9.9.9".parse().unwrap()).is_ok());
    assert!(policy.check_address("wiki.corp.evil.example", "10.9.9.9".parse().unwrap()).is_err());
    for bad in ["10.0.0.0/33", "fd00::/129", "10.0.0.0/x", "http://x", "*", "a b", "1.2.3"] {
        assert!(bad.parse::<WebPolicy>().unwrap_err().to_string().contains(bad), "{bad}");
    }
    assert_eq!(" , ".parse::<WebPolicy>().unwrap(), WebPolicy::default());
}

/// Answers by script: the first answers first, the last one for ever.
struct Rebinding {
    answers: Vec<Vec<IpAddr>>,
    asked: AtomicUsize,
}

#[async_trait]
impl Lookup for Rebinding {
    async fn lookup(&self, _: &str) -> std::io::Result<Vec<IpAddr>> {
        let n = self.asked.fetch_add(1, Ordering::SeqCst);
        Ok(self.answers[n.min(self.answers.len() - 1)].clone())
    }
}

fn client(allow: &str, answers: &[&[&str]]) -> GuardedClient {
    let answers = answers.iter().map(|list| list.iter().map(|ip| ip.parse().unwrap()).collect()).collect();
    let lookup = Rebinding { answers, asked: AtomicUsize::new(0) };
    GuardedClient::with_lookup(allow.parse().unwrap(), Arc::new(lookup))
}

/// Answers every request on loopback with what `answer` makes of its head; counts them.
async fn server(answer: impl Fn(&str) -> Vec<u8> + Send + Sync + 'static) -> (String, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let asked = Arc::new(AtomicUsize::new(0));
    let (counter, answer) = (asked.clone(), Arc::new(answer));
    tokio::spawn(async move {
        while let Ok((mut socket, _)) = listener.accept().await {
            let (counter, answer) = (counter.clone(), answer.clone());
            tokio::spawn(async move {
                let mut head = vec![0; 16 << 10];
                let read = socket.read(&mut head).await.unwrap_or(0);
                counter.fetch_add(1, Ordering::SeqCst);
                let _ = socket.write_all(&answer(&String::from_utf8_lossy(&head[..read]))).await;
                let _ = socket.shutdown().await;
            });
        }
    });
    (address, asked)
}

fn reply(head: &str, body: &str) -> Vec<u8> {
    format!("HTTP/1.1 {head}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}", body.len()).into_bytes()
}

#[tokio::test]
async fn given_a_name_that_points_inside_when_it_is_fetched_then_nobody_is_connected_to() {
    let (address, asked) = server(|_| reply("200 OK", "secret")).await;
    let port = address.rsplit(':').next().unwrap();
    for answers in [
        &[&["127.0.0.1"][..]][..],
        &[&["1.1.1.1", "127.0.0.1"]],
        &[&["::ffff:127.0.0.1"]],
        &[&["10.0.0.1"]],
        &[&["169.254.169.254"]],
        &[&["fe80::1"]],
        &[&[]],
    ] {
        let fetched = client("", answers).get(&format!("http://rebind.example:{port}/"), FetchLimits::default()).await;
        let code = fetched.expect_err("nothing is fetched").code();
        assert!(["address_not_allowed", "host_not_found"].contains(&code), "{answers:?}: {code}");
    }
    assert_eq!(asked.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn given_a_name_server_that_changes_its_answer_when_a_redirect_is_followed_then_the_second_answer_is_checked_too()
{
    // The first name is opened and answers with a redirect to a second one, which is public at first and then inside.
    let (address, asked) = server(|_| reply("302 Found\r\nlocation: http://other.example/x", "")).await;
    let port = address.rsplit(':').next().unwrap().to_owned();
    let client = client("first.example", &[&["127.0.0.1"], &["127.0.0.1"]]);
    let error = client.get(&format!("http://first.example:{port}/"), FetchLimits::default()).await.unwrap_err();
    assert!(matches!(&error, WebError::Address { host, .. } if host == "other.example"), "{error}");
    assert_eq!(asked.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn given_redirects_to_every_address_inside_when_they_are_followed_then_none_is_reached() {
    for target in INSIDE.iter().chain(&["file:///etc/passwd", "http://u:p@example.org/", "gopher://x/", "http://"]) {
        let line = format!("302 Found\r\nlocation: {target}");
        let (address, _) = server(move |_| reply(&line, "")).await;
        // Only this server's own port of loopback would answer; the policy opens the name, not the address.
        let port = address.rsplit(':').next().unwrap();
        let client = client("start.example", &[&["127.0.0.1"]]);
        let fetched = client.get(&format!("http://start.example:{port}/"), FetchLimits::default()).await;
        assert!(fetched.is_err(), "{target}");
    }
}

#[tokio::test]
async fn given_redirects_when_they_are_followed_then_at_most_so_many_and_without_headers_to_another_origin() {
    let (endless, asked) = server(|_| reply("302 Found\r\nlocation: /again", "")).await;
    let local = GuardedClient::new("127.0.0.1".parse().unwrap());
    let error = local.get(&format!("http://{endless}/"), FetchLimits::default()).await.unwrap_err();
    assert_eq!((error, asked.load(Ordering::SeqCst)), (WebError::Redirects { limit: 5 }, 6));

    let (end, _) = server(|head| reply("200 OK", if head.contains("canary") { "leaked" } else { "clean" })).await;
    let line = format!("307 Temporary Redirect\r\nlocation: http://{end}/x");
    let (start, _) = server(move |head| reply(&line, if head.contains("canary") { "" } else { "no header" })).await;
    let request = WebRequest {
        method: WebMethod::Get,
        url: format!("http://{start}/"),
        headers: vec![("authorization".into(), "Bearer canary".into())],
        body: None,
    };
    let fetched = local.send(request, FetchLimits::default()).await.unwrap();
    assert_eq!((fetched.body.as_slice(), fetched.status), (b"clean".as_slice(), 200));
    assert_eq!(fetched.final_url, format!("http://{end}/x"));
}

#[tokio::test]
async fn given_bodies_without_end_when_they_are_read_then_each_limit_holds() {
    let local = GuardedClient::new("127.0.0.1".parse().unwrap());
    let limits = FetchLimits { max_bytes: 1_000, timeout: Duration::from_millis(500), max_redirects: 1 };
    let endless = |_: &str| {
        let mut bytes = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n".to_vec();
        (0..1_000).for_each(|_| bytes.extend_from_slice(b"a\r\n0123456789\r\n"));
        bytes
    };
    let (address, _) = server(endless).await;
    let error = local.get(&format!("http://{address}/"), limits).await.unwrap_err();
    assert_eq!(error, WebError::TooLarge { limit: 1_000 });
    let (address, _) = server(|_| b"HTTP/1.1 200 OK\r\ncontent-length: 99999999999\r\n\r\n".to_vec()).await;
    assert_eq!(local.get(&format!("http://{address}/"), limits).await.unwrap_err().code(), "answer_too_large");
    let (address, _) = server(|_| reply("200 OK\r\ncontent-encoding: gzip", "\x1f")).await;
    assert_eq!(local.get(&format!("http://{address}/"), limits).await.unwrap_err().code(), "answer_coded");

    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/?key=canary", silent.local_addr().unwrap());
    assert_eq!(local.get(&url, limits).await.unwrap_err().code(), "timed_out");
    drop(silent);
    let error = local.get(&url, limits).await.unwrap_err();
    assert!(error.retryable() && !error.to_string().contains("canary"), "{error}");
}
