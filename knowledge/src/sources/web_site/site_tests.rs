//! Whole sites, served on loopback under names of their own.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use async_trait::async_trait;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use super::*;
use crate::web::{Lookup, WebPolicy};

/// Every name is this machine.
struct Loopback;

#[async_trait]
impl Lookup for Loopback {
    async fn lookup(&self, _host: &str) -> std::io::Result<Vec<IpAddr>> {
        Ok(vec![IpAddr::V4(Ipv4Addr::LOCALHOST)])
    }
}

fn page(body: &str) -> String {
    format!(
        "HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
        body.len()
    )
}

fn moved(to: &str) -> String {
    format!("HTTP/1.1 301 Moved\r\nlocation: {to}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
}

/// Serves answers by host and path, such as `one.example/a`; `PORT` in an answer is that of the server. Everything else is not found.
async fn serve(answers: &[(&str, String)]) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let filled = |answer: &String| answer.replace("PORT", &port.to_string());
    let answers: HashMap<String, String> =
        answers.iter().map(|(at, answer)| ((*at).to_owned(), filled(answer))).collect();
    let answers = Arc::new(answers);
    tokio::spawn(async move {
        while let Ok((mut socket, _)) = listener.accept().await {
            let answers = answers.clone();
            tokio::spawn(async move {
                let mut head = vec![0; 16 << 10];
                let read = socket.read(&mut head).await.unwrap_or(0);
                let head = String::from_utf8_lossy(&head[..read]).to_lowercase();
                let path = head.split(' ').nth(1).unwrap_or_default();
                let host = head.lines().find_map(|line| line.strip_prefix("host: ")).unwrap_or_default();
                let asked = format!("{}{path}", host.split(':').next().unwrap_or_default());
                let none = "HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
                let answer = answers.get(&asked).map_or(none, String::as_str);
                let _ = socket.write_all(answer.as_bytes()).await;
                let _ = socket.shutdown().await;
            });
        }
    });
    port
}

/// What is found: documents by path, `refused …`, and how much was left out.
async fn read(start: &str, port: u16, request: SourceRequest, max_files: usize) -> (Vec<String>, usize) {
    let client =
        GuardedClient::with_lookup("one.example,two.example".parse::<WebPolicy>().unwrap(), Arc::new(Loopback));
    let start = Url::parse(&start.replace("PORT", &port.to_string())).unwrap();
    let globs = Globs::new(&request.include, &request.exclude).unwrap();
    let limits = Limits { max_files, ..Limits::default() };
    let (sender, mut items) = mpsc::channel(64);
    let collected = async {
        let (mut found, mut skipped) = (Vec::new(), 0);
        while let Some(item) = items.recv().await {
            match item {
                Item::Document(document) => found.push(Url::parse(&document.source).unwrap().path().to_owned()),
                Item::Refused { source, error } => {
                    found.push(format!("refused {}: {error}", Url::parse(&source).unwrap().path()));
                }
                Item::Skipped { .. } => skipped += 1,
            }
        }
        (found, skipped)
    };
    let reading = async move { read_site(&start, &request, &globs, &client, limits, &sender).await };
    let (read, collected) = tokio::join!(reading, collected);
    read.unwrap();
    collected
}

#[tokio::test]
async fn given_a_site_that_moved_when_links_are_followed_then_they_are_those_of_its_new_host() {
    let port = serve(&[
        ("one.example/", moved("http://two.example:PORT/home")),
        (
            "two.example/home",
            page("<a href=/a>a</a><a href=/home>self</a><a href=/back>b</a><a href=/out>c</a><a href=/secret>d</a>"),
        ),
        ("two.example/robots.txt", page("User-agent: *\nDisallow: /secret")),
        ("two.example/a", page("<p>A</p>")),
        ("two.example/back", moved("/a")),
        ("two.example/out", moved("http://one.example:PORT/elsewhere")),
        ("one.example/elsewhere", page("<p>of another host</p>")),
        ("two.example/secret", page("<p>not for crawlers</p>")),
    ])
    .await;
    let request = SourceRequest { depth: 1, ..SourceRequest::default() };
    let (found, skipped) = read("http://one.example:PORT/", port, request, 100).await;
    assert_eq!(found[..2], ["/", "/a"]);
    assert!(found[2].starts_with("refused /out") && found[2].contains("not on the site"), "{found:?}");
    assert!(found[3].starts_with("refused /secret") && found[3].contains("robots.txt"), "{found:?}");
    assert_eq!((found.len(), skipped), (4, 1), "{found:?}");
}

#[tokio::test]
async fn given_a_sitemap_when_it_is_read_then_globs_count_and_what_is_broken_or_too_much_is_told() {
    let map = |paths: &[&str]| {
        let url = |path: &&str| format!("<url><loc>http://two.example:PORT{path}</loc></url>");
        format!("<urlset>{}</urlset>", paths.iter().map(url).collect::<String>())
    };
    let index = "<sitemapindex><sitemap><loc>http://two.example:PORT/1.xml</loc></sitemap>\
                 <sitemap><loc>http://two.example:PORT/gone.xml</loc></sitemap></sitemapindex>";
    let port = serve(&[
        ("one.example/sitemap.xml", moved("http://two.example:PORT/sitemap.xml")),
        ("two.example/sitemap.xml", unsized_page(index)),
        ("two.example/1.xml", unsized_page(&map(&["/docs/a", "/blog/b", "/docs/c", "/docs/d"]))),
        ("two.example/docs/a", page("<p>A</p>")),
        ("two.example/docs/c", page("<p>C</p>")),
        ("two.example/docs/d", page("<p>D</p>")),
        ("two.example/blog/b", page("<p>B</p>")),
    ])
    .await;
    let request = SourceRequest { sitemap: true, include: vec!["docs/**".to_owned()], ..SourceRequest::default() };
    let (found, skipped) = read("http://one.example:PORT/sitemap.xml", port, request, 2).await;
    assert!(found[0].starts_with("refused /gone.xml") && found[0].contains("404"), "{found:?}");
    assert_eq!((&found[1..], skipped), (&["/docs/a".to_owned(), "/docs/c".to_owned()][..], 1));
}

/// An answer that ends with its connection: its length changes with the port in it.
fn unsized_page(body: &str) -> String {
    format!("HTTP/1.1 200 OK\r\ncontent-type: text/xml\r\nconnection: close\r\n\r\n{body}")
}
