//! Group commit: a few threads that write and sync whatever has been queued, one partition at a time each.
//!
//! There is no added delay: while a partition is being synced its next batches pile up and go out together with the next
//! sync. An acknowledgement therefore waits for at most the sync in progress and one more. Idle threads sleep.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;

use parking_lot::{Condvar, Mutex};

use super::partition::Partition;

/// The queue of partitions with something to write.
#[derive(Default)]
pub(crate) struct FlushQueue {
    work: Mutex<Work>,
    ready: Condvar,
}

#[derive(Default)]
struct Work {
    partitions: VecDeque<Arc<Partition>>,
    closed: bool,
}

impl FlushQueue {
    /// Adds a partition; the caller sees to it that it is in here at most once.
    pub(crate) fn push(&self, partition: Arc<Partition>) {
        self.work.lock().partitions.push_back(partition);
        self.ready.notify_one();
    }

    fn next(&self) -> Option<Arc<Partition>> {
        let mut work = self.work.lock();
        loop {
            if let Some(partition) = work.partitions.pop_front() {
                return Some(partition);
            }
            if work.closed {
                return None;
            }
            self.ready.wait(&mut work);
        }
    }
}

/// The threads.
pub(crate) struct FlushPool {
    queue: Arc<FlushQueue>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl FlushPool {
    /// Starts `threads` threads.
    pub(crate) fn start(threads: usize) -> io::Result<Self> {
        let queue = Arc::new(FlushQueue::default());
        let threads = (0..threads.max(1))
            .map(|n| {
                let queue = queue.clone();
                std::thread::Builder::new().name(format!("broker-flush-{n}")).spawn(move || run(&queue))
            })
            .collect::<io::Result<Vec<_>>>()?;
        Ok(Self { queue, threads: Mutex::new(threads) })
    }

    /// The queue that the threads empty.
    pub(crate) fn queue(&self) -> &Arc<FlushQueue> {
        &self.queue
    }

    /// Writes what is queued and ends the threads. Blocks.
    pub(crate) fn stop(&self) {
        self.queue.work.lock().closed = true;
        self.queue.ready.notify_all();
        for thread in self.threads.lock().drain(..) {
            if thread.join().is_err() {
                tracing::error!("a flusher thread panicked");
            }
        }
    }
}

impl Drop for FlushPool {
    fn drop(&mut self) {
        self.queue.work.lock().closed = true;
        self.queue.ready.notify_all();
    }
}

fn run(queue: &FlushQueue) {
    while let Some(partition) = queue.next() {
        if partition.flush() {
            queue.push(partition);
        }
    }
}
