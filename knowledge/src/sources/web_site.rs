//! Pages of the web: one, those that it links to, or those of a sitemap. Always of one host, through the guarded client.

use std::collections::{HashSet, VecDeque};
use std::path::Path;
use std::time::{Duration, Instant};

use encoding_rs::Encoding;
use tokio::sync::mpsc;
use url::Url;

use super::gather::{Gathered, Item, SourceRequest};
use super::globs::Globs;
use super::robots::{Robots, Verdict};
use super::xml::{self, Node};
use super::{Fault, LeftOutReason, Limits, Source, SourceError, by_media_type, detect};
use crate::web::{FetchLimits, Fetched, GuardedClient, WebError};

mod links;
#[cfg(test)]
mod site_tests;

use links::links;

/// Most pages of one site.
pub const MAX_PAGES: usize = 1_000;

/// Deepest that links are followed.
pub const MAX_DEPTH: u32 = 5;

/// How long one site may take.
const MAX_TIME: Duration = Duration::from_secs(15 * 60);

/// Pause between two pages: a site is not a benchmark.
const PAUSE: Duration = Duration::from_millis(100);

/// Sitemaps that one sitemap may name.
const MAX_SITEMAPS: usize = 50;

/// Addresses that are remembered; those that come behind them are not even counted.
const MAX_SEEN: usize = 100_000;

/// Reads a page and, if asked, more of its site. The first page has to be there; others that are not are refused one by one.
///
/// The host is that of the first page behind its redirects. A later page that leads to another host is refused, and one that leads to
/// a page that is read anyway is left out, as is what comes behind the limit of pages.
pub(super) async fn read_site(
    start: &Url,
    request: &SourceRequest,
    globs: &Globs,
    client: &GuardedClient,
    limits: Limits,
    out: &mpsc::Sender<Item>,
) -> Result<(), SourceError> {
    if request.depth > MAX_DEPTH {
        return Err(SourceError::fault(
            "--depth",
            Fault::BadOption,
            format!("is {}; at most {MAX_DEPTH} links are followed", request.depth),
            "begin at several pages instead",
        ));
    }
    let fetch = FetchLimits {
        max_bytes: usize::try_from(limits.max_file_bytes).unwrap_or(usize::MAX),
        ..FetchLimits::default()
    };
    let mut site = Site { home: start.clone(), client, fetch, robots: None };
    let most = limits.max_files.min(MAX_PAGES);
    // A page that was named alone is asked for as a browser would; whatever follows links or a map is a crawler.
    let crawls = request.sitemap || request.depth > 0;
    if crawls {
        site.robots = Some(site.asked_robots().await?);
    }
    let mut crawl = if request.sitemap { site.sitemap_pages(globs, most).await? } else { Crawl::begin(start, most) };
    let forced =
        request.forced.as_deref().filter(|name| super::is_document_type(name)).map(super::by_name).transpose()?;
    let began = Instant::now();
    let mut first = true;
    for (source, error) in std::mem::take(&mut crawl.refused) {
        if out.send(Item::Refused { source, error }).await.is_err() {
            return Ok(());
        }
    }
    while let Some((url, depth)) = crawl.next() {
        if began.elapsed() > MAX_TIME {
            return Err(SourceError::fault(
                start.as_str(),
                Fault::TimedOut,
                format!("takes more than {} s to read", MAX_TIME.as_secs()),
                "begin further down the site, or lower --depth",
            ));
        }
        if !first {
            tokio::time::sleep(PAUSE).await;
        }
        let begins = first && !request.sitemap;
        first = false;
        let item = match site.page(&url, begins, &mut crawl).await {
            Err(error) if begins => return Err(error),
            Err(error) => Item::Refused { source: url.to_string(), error },
            Ok(None) => Item::skipped(LeftOutReason::Twice),
            Ok(Some(fetched)) => {
                if depth < request.depth {
                    crawl.add(links(&url, &fetched), &site.home, depth + 1, globs);
                }
                document(&url, fetched, forced)
            }
        };
        if out.send(item).await.is_err() {
            return Ok(());
        }
    }
    for _ in 0..crawl.left_out {
        if out.send(Item::skipped(LeftOutReason::BeyondLimit)).await.is_err() {
            return Ok(());
        }
    }
    Ok(())
}

struct Site<'s> {
    /// A page of the host that is read.
    home: Url,
    client: &'s GuardedClient,
    fetch: FetchLimits,
    /// What the host allows, where it is crawled.
    robots: Option<Robots>,
}

impl Site<'_> {
    /// A page of the site; nothing for one that is read under another address.
    async fn page(&mut self, url: &Url, begins: bool, crawl: &mut Crawl) -> Result<Option<Fetched>, SourceError> {
        self.permits(url)?;
        let fetched = self.fetch(url).await?;
        let end = arrived(url, &fetched);
        if self.robots.is_none() || end == *url {
            return Ok(Some(fetched));
        }
        if begins {
            self.move_to(&end).await?;
        } else if !same_site(&self.home, &end) {
            return Err(SourceError::fault(
                url.as_str(),
                Fault::SourceFailed,
                format!("leads to {}, which is not on the site", super::shown(end.as_str())),
                "ingest that address by itself",
            ));
        }
        self.permits(&end)?;
        Ok(crawl.meet(end).then_some(fetched))
    }

    /// Takes the host of an address as that of the site.
    async fn move_to(&mut self, end: &Url) -> Result<(), SourceError> {
        let moved = !same_site(&self.home, end);
        self.home = end.clone();
        if moved && self.robots.is_some() {
            self.robots = Some(self.asked_robots().await?);
        }
        Ok(())
    }

    fn permits(&self, url: &Url) -> Result<(), SourceError> {
        self.robots.as_ref().map_or(Ok(()), |robots| permitted(robots, url))
    }

    async fn fetch(&self, url: &Url) -> Result<Fetched, SourceError> {
        let fetched = self.client.get(url.as_str(), self.fetch).await.map_err(|error| refused(url, &error))?;
        if !(200..300).contains(&fetched.status) {
            return Err(SourceError::fault(
                url.as_str(),
                Fault::SourceFailed,
                format!("answered with status {}", fetched.status),
                "open it in a browser; what needs a login is not read",
            ));
        }
        Ok(fetched)
    }

    /// What the host allows.
    async fn asked_robots(&self) -> Result<Robots, SourceError> {
        let mut place = self.home.clone();
        place.set_path("/robots.txt");
        place.set_query(None);
        place.set_fragment(None);
        match self.client.get(place.as_str(), self.fetch).await {
            Ok(fetched) => Ok(Robots::answered(fetched.status, &fetched.body)),
            Err(error) => Err(refused(&place, &error)),
        }
    }

    /// The pages of a sitemap. The first map has to be there; others that are not are refused one by one.
    async fn sitemap_pages(&mut self, globs: &Globs, most: usize) -> Result<Crawl, SourceError> {
        let mut crawl = Crawl::of_at_most(most);
        let mut maps = VecDeque::from([self.home.clone()]);
        let mut read = 0;
        while let Some(map) = maps.pop_front() {
            read += 1;
            if read > MAX_SITEMAPS {
                crawl.left_out += 1;
                continue;
            }
            let found = match self.sitemap(&map, read == 1).await {
                Ok(found) => found,
                Err(error) if read == 1 => return Err(error),
                Err(error) => {
                    crawl.refused.push((map.to_string(), error));
                    continue;
                }
            };
            let urls = |locations: Vec<String>| locations.into_iter().filter_map(|at| Url::parse(&at).ok());
            maps.extend(urls(found.maps).filter(|url| same_site(&self.home, url)));
            crawl.add(urls(found.pages).collect(), &self.home, 0, globs);
        }
        if crawl.queue.is_empty() && crawl.refused.is_empty() {
            return Err(SourceError::no_text(self.home.as_str(), "the sitemap lists no page of its own host to read"));
        }
        Ok(crawl)
    }

    async fn sitemap(&mut self, map: &Url, begins: bool) -> Result<Sitemap, SourceError> {
        let fetched = self.fetch(map).await?;
        if begins {
            self.move_to(&arrived(map, &fetched)).await?;
        }
        let text = xml::decode(&fetched.body)
            .ok_or_else(|| SourceError::malformed(map.as_str(), "sitemap", "it is no text"))?;
        Sitemap::read(map.as_str(), &text)
    }
}

/// Where an answer came from, behind its redirects.
fn arrived(url: &Url, fetched: &Fetched) -> Url {
    let mut end = Url::parse(&fetched.final_url).unwrap_or_else(|_| url.clone());
    end.set_fragment(None);
    end
}

/// The reason why a page may not be read, if there is one.
fn permitted(robots: &Robots, url: &Url) -> Result<(), SourceError> {
    let (code, why) = match robots.verdict(url) {
        Verdict::Allowed => return Ok(()),
        Verdict::Disallowed(rule) => ("robots_disallowed", format!("its robots.txt disallows {rule}")),
        Verdict::Unknown(reason) => ("robots_unknown", format!("its robots.txt {reason}, so nothing may be read now")),
    };
    Err(SourceError::Told {
        code,
        message: format!("{} is not read: {why}", super::shown(url.as_str())),
        hint: Some("ask the site's owner, or name single pages without --depth and --sitemap".to_owned()),
    })
}

fn refused(url: &Url, error: &WebError) -> SourceError {
    SourceError::Told {
        code: error.code(),
        message: format!("{} can't be read: {error}", super::shown(url.as_str())),
        hint: error.hint().or_else(|| Some("check the address".to_owned())),
    }
}

/// Pages that are still to be read, each once.
#[derive(Default)]
struct Crawl {
    queue: VecDeque<(Url, u32)>,
    seen: HashSet<String>,
    /// How many more pages may be taken.
    room: usize,
    /// Pages and maps that came when there was no room.
    left_out: usize,
    /// Maps that could not be read.
    refused: Vec<(String, SourceError)>,
}

impl Crawl {
    fn of_at_most(most: usize) -> Self {
        Self { room: most, ..Self::default() }
    }

    fn begin(start: &Url, most: usize) -> Self {
        let mut crawl = Self::of_at_most(most.max(1));
        crawl.push(start.clone(), 0);
        crawl
    }

    fn next(&mut self) -> Option<(Url, u32)> {
        self.queue.pop_front()
    }

    fn push(&mut self, mut url: Url, depth: u32) {
        url.set_fragment(None);
        if self.seen.len() >= MAX_SEEN || !self.seen.insert(url.to_string()) {
            return;
        }
        if self.room == 0 {
            self.left_out += 1;
        } else {
            self.room -= 1;
            self.queue.push_back((url, depth));
        }
    }

    /// Notes where another address led to; whether that page is new.
    fn meet(&mut self, end: Url) -> bool {
        self.seen.insert(end.into())
    }

    fn add(&mut self, links: Vec<Url>, home: &Url, depth: u32, globs: &Globs) {
        let wanted = |url: &Url| globs.wants(Path::new(url.path().trim_start_matches('/')));
        links.into_iter().filter(|url| same_site(home, url) && wanted(url)).for_each(|url| self.push(url, depth));
    }
}

fn same_site(start: &Url, url: &Url) -> bool {
    matches!(url.scheme(), "http" | "https")
        && url.host_str() == start.host_str()
        && url.port_or_known_default() == start.port_or_known_default()
}

/// What a page turned out to be.
fn document(url: &Url, fetched: Fetched, forced: Option<&'static dyn Source>) -> Item {
    let media_type =
        fetched.content_type.as_deref().map(|given| given.split(';').next().unwrap_or_default().trim().to_lowercase());
    let by_header = || media_type.as_deref().and_then(by_media_type);
    let by_path = || detect(Path::new(url.path()), &fetched.body, None);
    // "text/plain" is what servers say of everything that they do not know.
    let kind = match (forced, by_header()) {
        (Some(kind), _) => Ok(kind),
        (None, Some(kind)) if kind.name() != "text" => Ok(kind),
        (None, Some(text)) => by_path().or(Ok(text)),
        (None, None) => by_path(),
    };
    match kind {
        Ok(kind) => {
            let bytes = labelled(fetched.content_type.as_deref(), fetched.body, kind);
            Item::Document(Gathered { source: url.to_string(), bytes, kind })
        }
        Err(error) => Item::Refused { source: url.to_string(), error },
    }
}

/// The encoding that the server names goes into the bytes, which travel without its headers.
fn labelled(content_type: Option<&str>, body: Vec<u8>, kind: &dyn Source) -> Vec<u8> {
    let label = content_type.and_then(|given| {
        given
            .to_lowercase()
            .split_once("charset=")
            .map(|(_, label)| label.trim_matches(['"', '\'', ' ', ';']).to_owned())
    });
    let encoding = label.and_then(|label| Encoding::for_label(label.as_bytes()));
    match encoding {
        Some(encoding) if kind.media_type().starts_with("text/") && Encoding::for_bom(&body).is_none() => {
            match encoding.decode_without_bom_handling_and_without_replacement(&body) {
                Some(text) => [b"\xef\xbb\xbf", text.as_bytes()].concat(),
                None => body,
            }
        }
        _ => body,
    }
}

#[derive(Debug, Default, PartialEq)]
struct Sitemap {
    pages: Vec<String>,
    maps: Vec<String>,
}

impl Sitemap {
    /// After <https://www.sitemaps.org/protocol.html>.
    fn read(name: &str, text: &str) -> Result<Self, SourceError> {
        let mut found = Self::default();
        let (mut in_map, mut in_location, mut location) = (false, false, String::new());
        xml::walk(name, "sitemap", text, |node| match node {
            Node::Open(tag) => match tag.name() {
                "sitemap" => in_map = true,
                "url" => in_map = false,
                "loc" => (in_location, location) = (true, String::new()),
                _ => {}
            },
            Node::Text(text) if in_location => location.push_str(text),
            Node::Text(_) => {}
            Node::Close("loc") => {
                in_location = false;
                let list = if in_map { &mut found.maps } else { &mut found.pages };
                list.push(location.trim().to_owned());
            }
            Node::Close(_) => {}
        })?;
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn given_a_sitemap_when_read_then_pages_and_further_maps_are_told_apart() {
        let pages =
            Sitemap::read("s", "<urlset><url><loc> https://h/a </loc></url><url><loc>https://h/b</loc></url></urlset>")
                .unwrap();
        assert_eq!((pages.pages.len(), pages.pages[0].as_str()), (2, "https://h/a"));
        let maps =
            Sitemap::read("s", "<sitemapindex><sitemap><loc>https://h/s2.xml</loc></sitemap></sitemapindex>").unwrap();
        assert_eq!(maps.maps, ["https://h/s2.xml"]);
    }

    #[test]
    fn given_links_when_they_are_added_then_each_page_of_the_site_is_read_once_and_not_too_many() {
        let start = Url::parse("https://h/").unwrap();
        let url = |path: &str| start.join(path).unwrap();
        let mut crawl = Crawl::begin(&start, 3);
        crawl.add(
            vec![
                url("/a#x"),
                url("/a#y"),
                url("https://other/"),
                url("http://h/"),
                url("mailto:a@h"),
                url("/b"),
                url("/c"),
            ],
            &start,
            1,
            &Globs::all(),
        );
        let queued: Vec<String> = std::iter::from_fn(|| crawl.next()).map(|(url, _)| url.to_string()).collect();
        assert_eq!(queued, ["https://h/", "https://h/a", "https://h/b"]);
        assert_eq!(crawl.left_out, 1);
    }

    #[test]
    fn given_what_servers_say_of_a_page_when_it_becomes_a_document_then_type_and_encoding_are_kept() {
        let item = |path: &str, content_type: Option<&str>, body: &[u8]| {
            let url = Url::parse("https://h/").unwrap().join(path).unwrap();
            let fetched = Fetched {
                final_url: url.to_string(),
                status: 200,
                content_type: content_type.map(str::to_owned),
                body: body.to_vec(),
            };
            match document(&url, fetched, None) {
                Item::Document(found) => (found.kind.name(), found.bytes),
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(
            item("/x", Some("text/html; charset=ISO-8859-1"), b"caf\xe9"),
            ("html", b"\xef\xbb\xbfcaf\xc3\xa9".to_vec())
        );
        assert_eq!(item("/a.md", Some("text/plain"), b"# A").0, "markdown");
        assert_eq!(item("/a", Some("text/plain; charset=utf-8"), b"A").0, "text");
        assert_eq!(item("/a.pdf", None, b"%PDF-").0, "pdf");
        assert_eq!(item("/a", Some("application/json"), b"{}").0, "json");
    }
}
