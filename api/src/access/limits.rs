//! Limits of rate: a token bucket (<https://en.wikipedia.org/wiki/Token_bucket>) for each token and each namespace. Processes that
//! share a cache share the buckets; without one, or while it is away, each process allows as much for itself.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use riverrun_stores::Cache;

/// Most buckets at once. Beyond, those that are full are forgotten, which changes nothing; when none is, all begin anew.
const MAX_BUCKETS: usize = 10_000;
/// Logins that are tried in a minute, by everyone together.
pub(crate) const LOGINS_PER_MINUTE: u32 = 60;

/// Whose requests are counted together.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Counted {
    /// Those of a token.
    Token(String),
    /// Those that come without one, where none is asked for.
    Anyone,
    /// Those for a namespace.
    Namespace(String),
    /// Logins.
    Login,
}

impl Counted {
    /// Its name among the buckets that processes share.
    fn name(&self) -> String {
        match self {
            Self::Token(name) => format!("token:{name}"),
            Self::Anyone => "anyone".to_owned(),
            Self::Namespace(name) => format!("namespace:{name}"),
            Self::Login => "login".to_owned(),
        }
    }
}

/// As many requests as `per_minute` at once, and again as many over the next minute.
#[derive(Debug, Clone, Copy)]
struct Bucket {
    left: f64,
    at: Instant,
}

impl Bucket {
    fn full(per_minute: u32, now: Instant) -> Self {
        Self { left: f64::from(per_minute), at: now }
    }

    fn refill(&mut self, per_minute: u32, now: Instant) {
        let gained = now.saturating_duration_since(self.at).as_secs_f64() * f64::from(per_minute) / 60.0;
        self.left = (self.left + gained).min(f64::from(per_minute));
        self.at = now;
    }

    /// Takes one; where none is left, how long until there is one.
    fn take(&mut self, per_minute: u32, now: Instant) -> Result<(), Duration> {
        self.refill(per_minute, now);
        if self.left >= 1.0 {
            self.left -= 1.0;
            return Ok(());
        }
        Err(Duration::from_secs_f64((1.0 - self.left) * 60.0 / f64::from(per_minute)))
    }
}

/// The limits, in requests a minute; 0 is none.
pub(crate) struct RateLimits {
    per_token: u32,
    per_namespace: u32,
    buckets: Mutex<HashMap<Counted, (u32, Bucket)>>,
}

impl RateLimits {
    pub(crate) fn new(per_token: u32, per_namespace: u32) -> Self {
        Self { per_token, per_namespace, buckets: Mutex::default() }
    }

    /// Counts one request; over the limit, the time after which it may come again. `own` is a limit of the token's.
    pub(crate) fn take(&self, counted: Counted, own: Option<u32>, now: Instant) -> Result<(), Duration> {
        let per_minute = self.per_minute(&counted, own);
        if per_minute == 0 {
            return Ok(());
        }
        let mut buckets = self.buckets.lock();
        if buckets.len() >= MAX_BUCKETS && !buckets.contains_key(&counted) {
            forget_full(&mut buckets, now);
        }
        let (limit, bucket) = buckets.entry(counted).or_insert_with(|| (per_minute, Bucket::full(per_minute, now)));
        if *limit != per_minute {
            // The token was made anew with another limit.
            (*limit, *bucket) = (per_minute, Bucket::full(per_minute, now));
        }
        bucket.take(per_minute, now)
    }

    /// The same for all processes together, where they share a cache that answers.
    pub(crate) async fn take_shared(
        &self,
        cache: &dyn Cache,
        counted: Counted,
        own: Option<u32>,
        now: Instant,
    ) -> Result<(), Duration> {
        let per_minute = self.per_minute(&counted, own);
        if per_minute == 0 {
            return Ok(());
        }
        match cache.take(&counted.name(), per_minute).await {
            Some(judged) => judged,
            None => self.take(counted, own, now),
        }
    }

    /// Counts a request that was let through by this process alone for the other processes too. Where there is none left for all
    /// together, this process lets none through either until there is.
    pub(crate) async fn tell(&self, cache: &dyn Cache, counted: Counted, now: Instant) {
        let per_minute = self.per_minute(&counted, None);
        if per_minute == 0 {
            return;
        }
        if let Some(Err(wait)) = cache.take(&counted.name(), per_minute).await {
            let left = 1.0 - wait.as_secs_f64() * f64::from(per_minute) / 60.0;
            if let Some((_, bucket)) = self.buckets.lock().get_mut(&counted) {
                *bucket = Bucket { left: left.min(bucket.left), at: now.max(bucket.at) };
            }
        }
    }

    fn per_minute(&self, counted: &Counted, own: Option<u32>) -> u32 {
        match counted {
            Counted::Token(_) | Counted::Anyone => own.unwrap_or(self.per_token),
            Counted::Namespace(_) => self.per_namespace,
            Counted::Login => LOGINS_PER_MINUTE,
        }
    }
}

fn forget_full(buckets: &mut HashMap<Counted, (u32, Bucket)>, now: Instant) {
    buckets.retain(|_, (per_minute, bucket)| {
        bucket.refill(*per_minute, now);
        bucket.left < f64::from(*per_minute)
    });
    if buckets.len() >= MAX_BUCKETS {
        buckets.clear();
    }
}

#[cfg(test)]
mod tests {
    use riverrun_stores::CacheStatus;

    use super::*;

    fn token(name: &str) -> Counted {
        Counted::Token(name.to_owned())
    }

    #[test]
    fn given_a_limit_when_it_is_used_up_then_the_next_waits_and_others_do_not() {
        let limits = RateLimits::new(60, 0);
        let start = Instant::now();
        for _ in 0..60 {
            limits.take(token("ann"), None, start).unwrap();
        }
        let wait = limits.take(token("ann"), None, start).unwrap_err();
        assert!(wait > Duration::from_millis(990) && wait <= Duration::from_secs(1), "{wait:?}");
        limits.take(token("bob"), None, start).unwrap();
        limits.take(Counted::Namespace("team".into()), None, start).unwrap();
        limits.take(token("ann"), None, start + Duration::from_secs(1)).unwrap();
        limits.take(token("ann"), None, start + Duration::from_secs(1)).unwrap_err();
        for _ in 0..60 {
            limits.take(token("ann"), None, start + Duration::from_secs(3_600)).unwrap();
        }
        limits.take(token("ann"), None, start + Duration::from_secs(3_600)).unwrap_err();
    }

    #[test]
    fn given_no_limit_or_one_of_its_own_when_requests_come_then_that_one_counts() {
        let limits = RateLimits::new(0, 2);
        let now = Instant::now();
        for _ in 0..1_000 {
            limits.take(Counted::Anyone, None, now).unwrap();
        }
        limits.take(token("ann"), Some(1), now).unwrap();
        limits.take(token("ann"), Some(1), now).unwrap_err();
        for allowed in [true, true, false] {
            assert_eq!(limits.take(Counted::Namespace("team".into()), None, now).is_ok(), allowed);
        }
    }

    /// Buckets that are never filled up again; away when it is told so.
    #[derive(Default)]
    struct SharedBuckets {
        taken: Mutex<HashMap<String, u32>>,
        is_away: std::sync::atomic::AtomicBool,
    }

    #[async_trait::async_trait]
    impl Cache for SharedBuckets {
        async fn get(&self, _key: &str) -> Option<Vec<u8>> {
            None
        }

        async fn put(&self, _key: &str, _value: Vec<u8>, _keep: Duration) {}

        async fn take(&self, bucket: &str, per_minute: u32) -> Option<Result<(), Duration>> {
            if self.is_away.load(std::sync::atomic::Ordering::Relaxed) {
                return None;
            }
            let mut all = self.taken.lock();
            let taken = all.entry(bucket.to_owned()).or_default();
            if *taken >= per_minute {
                return Some(Err(Duration::from_secs(30)));
            }
            *taken += 1;
            Some(Ok(()))
        }

        fn is_shared(&self) -> bool {
            true
        }

        async fn status(&self) -> CacheStatus {
            CacheStatus { kind: "test", address: None, version: None, trouble: None }
        }
    }

    #[tokio::test]
    async fn given_buckets_that_are_shared_when_two_processes_count_then_they_allow_what_one_would_and_each_its_own_without()
     {
        let (one, other, cache) = (RateLimits::new(4, 0), RateLimits::new(4, 0), SharedBuckets::default());
        let now = Instant::now();
        for limits in [&one, &other, &one, &other] {
            limits.take_shared(&cache, token("ann"), None, now).await.unwrap();
        }
        for limits in [&one, &other] {
            assert_eq!(limits.take_shared(&cache, token("ann"), None, now).await, Err(Duration::from_secs(30)));
            limits.take_shared(&cache, token("bob"), None, now).await.unwrap();
        }
        cache.is_away.store(true, std::sync::atomic::Ordering::Relaxed);
        for limits in [&one, &other] {
            for allowed in [true, true, true, true, false] {
                assert_eq!(limits.take_shared(&cache, token("ann"), None, now).await.is_ok(), allowed);
            }
        }
    }

    #[tokio::test]
    async fn given_requests_that_were_let_through_when_the_others_have_used_up_the_limit_then_no_more_are_until_there_is_one()
     {
        let (one, other, cache) = (RateLimits::new(0, 2), RateLimits::new(0, 2), SharedBuckets::default());
        let (now, team) = (Instant::now(), || Counted::Namespace("team".to_owned()));
        for _ in 0..2 {
            one.take(team(), None, now).unwrap();
            one.tell(&cache, team(), now).await;
        }
        other.take(team(), None, now).unwrap();
        other.tell(&cache, team(), now).await;
        other.take(team(), None, now).unwrap_err();
        other.take(team(), None, now + Duration::from_secs(29)).unwrap_err();
        other.take(team(), None, now + Duration::from_secs(31)).unwrap();
    }

    #[test]
    fn given_more_names_than_buckets_when_requests_come_then_the_number_of_buckets_has_a_bound() {
        let limits = RateLimits::new(0, 1);
        let now = Instant::now();
        for index in 0..MAX_BUCKETS * 2 + 5 {
            let _ = limits.take(Counted::Namespace(format!("n{index}")), None, now);
        }
        assert!(limits.buckets.lock().len() <= MAX_BUCKETS);
    }
}
