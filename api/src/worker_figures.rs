//! What the workers of a process do, for its page of figures.

use std::collections::BTreeMap;

use riverrun_workers::runtime::WorkerStatus;

use crate::metrics::Page;
use crate::state::worker_trouble;

/// Workers of one name. They are told of together: two series with the same labels make a page that Prometheus refuses.
#[derive(Default)]
struct Together {
    hindered: bool,
    in_work: usize,
    handled: u64,
    retries: u64,
    dead_letters: u64,
    skipped: u64,
}

impl Together {
    fn add(&mut self, worker: &WorkerStatus) {
        self.hindered |= worker_trouble(worker).is_some();
        self.in_work += worker.in_work;
        self.handled += worker.handled;
        self.retries += worker.retries;
        self.dead_letters += worker.dead_letters;
        self.skipped += worker.skipped;
    }
}

fn by_name(workers: &[WorkerStatus]) -> BTreeMap<&str, Together> {
    let mut names: BTreeMap<&str, Together> = BTreeMap::new();
    for worker in workers {
        names.entry(worker.name.as_str()).or_default().add(worker);
    }
    names
}

/// Whether each gets on, and what became of its records.
pub fn write(workers: &[WorkerStatus], page: &mut Page) {
    let names = by_name(workers);
    for (name, together) in &names {
        let up = f64::from(u8::from(!together.hindered));
        page.sample("riverrun_worker_up", "gauge", "1 while the worker gets on", &[("worker", name)], up);
    }
    for (name, together) in &names {
        for (what, records) in [
            ("handled", together.handled),
            ("retries", together.retries),
            ("dead_letters", together.dead_letters),
            ("skipped", together.skipped),
        ] {
            page.sample(
                "riverrun_worker_records_total",
                "counter",
                "records by what became of them",
                &[("worker", name), ("what", what)],
                records as f64,
            );
        }
    }
    for (name, together) in &names {
        page.sample(
            "riverrun_worker_in_work",
            "gauge",
            "records in queue and work",
            &[("worker", name)],
            together.in_work as f64,
        );
    }
}

/// How far a group is behind in a partition.
pub fn write_lag(group: &str, topic: &str, partition: i32, lag: i64, page: &mut Page) {
    let labels = [("group", group), ("topic", topic), ("partition", &partition.to_string())];
    page.sample("riverrun_consumer_lag", "gauge", "records not yet handled", &labels, lag as f64);
}

#[cfg(test)]
pub(crate) mod tests {
    use riverrun_workers::runtime::WorkerState;

    use super::*;

    pub(crate) fn worker(name: &str, state: WorkerState, dead_letters: u64) -> WorkerStatus {
        WorkerStatus {
            name: name.to_owned(),
            group: format!("riverrun.{name}"),
            state,
            trouble: None,
            partitions: 3,
            in_work: 2,
            handled: 10,
            retries: 1,
            dead_letters,
            skipped: 0,
            out_of_range: 0,
            idle_ms: 0,
        }
    }

    #[test]
    fn given_two_workers_of_a_name_when_the_page_is_written_then_each_series_is_there_once_with_both_in_it() {
        let workers = [
            worker("embedder", WorkerState::Running, 1),
            worker("indexer", WorkerState::Running, 0),
            worker("embedder", WorkerState::Failed, 4),
        ];
        let mut page = Page::default();
        write(&workers, &mut page);
        let text = page.finish();
        for line in [
            "riverrun_worker_up{worker=\"embedder\"} 0\n",
            "riverrun_worker_up{worker=\"indexer\"} 1\n",
            "riverrun_worker_records_total{worker=\"embedder\",what=\"dead_letters\"} 5\n",
            "riverrun_worker_records_total{worker=\"embedder\",what=\"handled\"} 20\n",
            "riverrun_worker_in_work{worker=\"embedder\"} 4\n",
        ] {
            assert_eq!(text.matches(line).count(), 1, "{line} in\n{text}");
        }
        let series: Vec<&str> = text.lines().filter_map(|line| line.rsplit_once(' ')).map(|(name, _)| name).collect();
        let samples: Vec<&&str> = series.iter().filter(|name| !name.starts_with('#')).collect();
        let different: std::collections::BTreeSet<_> = samples.iter().collect();
        assert_eq!(samples.len(), different.len(), "{text}");
    }

    #[test]
    fn given_work_of_which_nothing_got_done_for_an_hour_when_it_is_looked_at_then_only_that_of_long_records_is_no_trouble()
     {
        for (name, is_long) in [("trainer", true), ("rebuilder", true), ("tuner", true), ("embedder", false)] {
            let status = WorkerStatus { in_work: 1, idle_ms: 3_600_000, ..worker(name, WorkerState::Running, 0) };
            assert_eq!(worker_trouble(&status).is_none(), is_long, "{name}");
        }
    }
}
