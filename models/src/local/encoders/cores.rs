//! The threads that encoders of our own compute with.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use rayon::{ThreadPool, ThreadPoolBuilder};

/// How many there are to be; 0 is one for each core.
static THREADS: AtomicUsize = AtomicUsize::new(0);
/// Of the process, as its cores are: several runtimes share them.
static POOL: OnceLock<Option<ThreadPool>> = OnceLock::new();

/// Says how many threads there are to be. Once something was computed it changes nothing.
pub(super) fn set(threads: usize) {
    THREADS.store(threads, Ordering::Relaxed);
}

/// Runs a computation on one of the threads, which hands out parts of it to the others. From outside, each of some hundred parallel steps
/// would wait until a thread wakes up, which on a busy machine takes longer than the step.
pub(super) fn run<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    match POOL.get_or_init(start) {
        Some(pool) => pool.install(work),
        None => rayon::scope(|_| work()),
    }
}

/// Hands work to one of the threads, which begins when one is free. It must not panic: that would end the process.
pub(super) fn spawn(work: impl FnOnce() + Send + 'static) {
    match POOL.get_or_init(start) {
        Some(pool) => pool.spawn(work),
        None => rayon::spawn(work),
    }
}

fn start() -> Option<ThreadPool> {
    let name = |index: usize| format!("encoder {index}");
    match ThreadPoolBuilder::new().num_threads(THREADS.load(Ordering::Relaxed)).thread_name(name).build() {
        Ok(pool) => Some(pool),
        Err(error) => {
            tracing::warn!(%error, "threads for encoders can't be started; those of the process compute");
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use rayon::prelude::*;

    use super::*;

    #[test]
    fn given_a_computation_when_it_runs_then_all_of_its_parts_are_on_the_threads_of_encoders() {
        let on_one = || std::thread::current().name().is_some_and(|name| name.starts_with("encoder "));
        assert!(!on_one());
        let parts: Vec<bool> = run(|| (0..1_000).into_par_iter().map(|_| on_one()).collect());
        assert!(parts.len() == 1_000 && parts.iter().all(|own| *own));
        assert_eq!(run(|| run(|| 7)), 7, "a computation may run within another");
    }
}
