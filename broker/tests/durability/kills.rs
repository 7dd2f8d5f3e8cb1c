//! `kill -9`: what was acknowledged is there, groups keep their partitions, transactions are whole or absent.

use super::*;

/// Not a test of its own: the process that [`given_kill_9_under_load`] kills.
#[tokio::test(flavor = "multi_thread", worker_threads = 8)]
#[expect(clippy::print_stdout, reason = "the parent process reads the address there")]
async fn child_broker() {
    let Ok(folder) = std::env::var("BROKER_CHILD_DIR") else { return };
    let listen = std::env::var("BROKER_CHILD_LISTEN").unwrap().parse().unwrap();
    let mut config = riverrun_broker::BrokerConfig::new(folder).listen(listen);
    config.segment_bytes = 100_000;
    let broker = Broker::start(config).await.unwrap();
    println!("\nlistening {}", broker.local_addr());
    std::future::pending::<()>().await;
}

/// How often the broker is killed, and how long it lives: three times, or `BROKER_KILLS` times and then not for long.
fn kills() -> (u32, Duration) {
    match std::env::var("BROKER_KILLS") {
        Ok(text) => (text.parse().expect("BROKER_KILLS is a number"), Duration::from_millis(150)),
        Err(_) => (3, Duration::from_millis(500)),
    }
}

fn spawn_broker(folder: &TempDir, listen: &str) -> (Child, String) {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "kills::child_broker", "--nocapture"])
        .env("BROKER_CHILD_DIR", folder.path())
        .env("BROKER_CHILD_LISTEN", listen)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let address = lines.map_while(Result::ok).find_map(|line| line.strip_prefix("listening ").map(str::to_owned));
    (child, address.expect("the child listens"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 8)]
async fn given_kill_9_under_load_when_restarted_then_everything_acknowledged_is_there_once_in_its_place() {
    let folder = TempDir::new().unwrap();
    let (mut child, address) = spawn_broker(&folder, "127.0.0.1:0");
    let producer: FutureProducer = {
        let mut config = client(address.parse().unwrap());
        config.set("enable.idempotence", "true").set("linger.ms", "1").set("message.timeout.ms", "30000");
        config.set("reconnect.backoff.max.ms", "100").create().unwrap()
    };
    send(&producer, "t", 0, "first", "first").await;
    let stop = Arc::new(AtomicBool::new(false));
    let next = Arc::new(AtomicU64::new(0));
    let senders: Vec<_> = (0..16)
        .map(|_| {
            let (producer, stop, next) = (producer.clone(), stop.clone(), next.clone());
            tokio::spawn(async move {
                let mut acknowledged = Vec::new();
                while !stop.load(Ordering::SeqCst) {
                    let id = next.fetch_add(1, Ordering::SeqCst).to_string();
                    let record = FutureRecord::to("t").partition(0).key(&id).payload(&id);
                    if let Ok(delivery) = producer.send(record, PATIENCE).await {
                        acknowledged.push((id, delivery.offset));
                    }
                }
                acknowledged
            })
        })
        .collect();
    let (kills, pause) = kills();
    // Each sender begins another record only when its last one was answered.
    let goes_on = || {
        let enough = next.load(Ordering::SeqCst) + 64;
        let next = next.clone();
        move || next.load(Ordering::SeqCst) > enough
    };
    for _ in 0..kills {
        eventually("load", goes_on()).await;
        tokio::time::sleep(pause).await;
        child.kill().unwrap();
        child.wait().unwrap();
        (child, _) = spawn_broker(&folder, &address);
    }
    eventually("load after the last kill", goes_on()).await;
    stop.store(true, Ordering::SeqCst);
    let mut acknowledged = Vec::new();
    for sender in senders {
        acknowledged.extend(sender.await.unwrap());
    }
    let messages = read_all(address.parse().unwrap(), "t", 1, "read_committed").await;
    child.kill().unwrap();
    child.wait().unwrap();
    let mut found: HashMap<String, Vec<i64>> = HashMap::new();
    for message in &messages {
        let id = String::from_utf8(message.payload().unwrap().to_vec()).unwrap();
        found.entry(id).or_default().push(message.offset());
    }
    assert!(acknowledged.len() > 100, "there was load: {}", acknowledged.len());
    for (id, offset) in &acknowledged {
        assert_eq!(found.get(id), Some(&vec![*offset]), "record {id}");
    }
}

/// Counts how often a member's partitions change.
#[derive(Default)]
struct Rebalances(AtomicUsize);

impl ClientContext for Rebalances {}

impl ConsumerContext for Rebalances {
    fn post_rebalance(&self, _: &BaseConsumer<Self>, _: &Rebalance<'_>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 8)]
async fn given_kill_9_when_restarted_then_members_of_groups_keep_their_partitions() {
    let folder = TempDir::new().unwrap();
    let (mut child, address) = spawn_broker(&folder, "127.0.0.1:0");
    let producer = producer(address.parse().unwrap());
    send(&producer, "t", 0, "k", "first").await;
    let member = |group: &str, instance: Option<&str>| -> StreamConsumer<Rebalances> {
        let mut config = client(address.parse().unwrap());
        config.set("group.id", group).set("auto.offset.reset", "earliest").set("enable.auto.commit", "false");
        config.set("heartbeat.interval.ms", "200").set("reconnect.backoff.max.ms", "100");
        if let Some(instance) = instance {
            config.set("group.instance.id", instance);
        }
        let consumer: StreamConsumer<Rebalances> = config.create_with_context(Rebalances::default()).unwrap();
        consumer.subscribe(&["t"]).unwrap();
        consumer
    };
    let members = [member("dynamic", None), member("static", Some("one"))];
    for value in ["first", "second", "third"] {
        for member in &members {
            // A client also tells that the broker was away.
            let next = async {
                loop {
                    if let Ok(message) = member.recv().await {
                        return message;
                    }
                }
            };
            let message = tokio::time::timeout(PATIENCE, next).await.expect("a record");
            assert_eq!(message.payload(), Some(value.as_bytes()));
            // It is durable, and so is whatever the broker wrote down before it.
            member.commit_message(&message, CommitMode::Sync).unwrap();
        }
        if value != "third" {
            child.kill().unwrap();
            child.wait().unwrap();
            (child, _) = spawn_broker(&folder, &address);
            send(&producer, "t", 0, "k", if value == "first" { "second" } else { "third" }).await;
        }
    }
    let rebalances = members.each_ref().map(|member| member.context().0.load(Ordering::SeqCst));
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(rebalances, [1, 1]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 8)]
async fn given_kill_9_within_transactions_when_restarted_then_each_is_whole_or_absent() {
    let folder = TempDir::new().unwrap();
    let (mut child, address) = spawn_broker(&folder, "127.0.0.1:0");
    let setup = producer(address.parse().unwrap());
    for topic in ["a", "b"] {
        send(&setup, topic, 0, "k", "setup").await;
    }
    let stop = Arc::new(AtomicBool::new(false));
    let (running, to) = (stop.clone(), address.clone());
    let commits = Arc::new(AtomicUsize::new(0));
    let counted = commits.clone();
    let writer = std::thread::spawn(move || {
        let mut committed = Vec::new();
        let mut id = 0;
        while !running.load(Ordering::SeqCst) {
            let mut config = client(to.parse().unwrap());
            config
                .set("transactional.id", "x")
                .set("reconnect.backoff.max.ms", "100")
                .set("message.timeout.ms", "5000");
            let producer: FutureProducer = config.set("transaction.timeout.ms", "6000").create().unwrap();
            if producer.init_transactions(Duration::from_secs(10)).is_err() {
                continue;
            }
            // A producer goes on until something fails, then a new one takes over.
            while !running.load(Ordering::SeqCst) && producer.begin_transaction().is_ok() {
                id += 1;
                let value = id.to_string();
                let queued = ["a", "b"]
                    .map(|topic| producer.send_result(FutureRecord::to(topic).partition(0).key("k").payload(&value)));
                if queued.iter().any(Result::is_err) || producer.commit_transaction(Duration::from_secs(10)).is_err() {
                    break;
                }
                committed.push(value);
                counted.store(committed.len(), Ordering::SeqCst);
            }
        }
        committed
    });
    let (kills, pause) = kills();
    let commits_go_on = || {
        let enough = commits.load(Ordering::SeqCst) + 2;
        let commits = commits.clone();
        move || commits.load(Ordering::SeqCst) > enough
    };
    for _ in 0..kills {
        eventually("commits", commits_go_on()).await;
        tokio::time::sleep(pause).await;
        child.kill().unwrap();
        child.wait().unwrap();
        (child, _) = spawn_broker(&folder, &address);
    }
    eventually("commits after the last kill", commits_go_on()).await;
    stop.store(true, Ordering::SeqCst);
    let committed = blocking(move || writer.join().unwrap()).await;
    // The last producer may have left a transaction open: its successor ends it.
    let successor: FutureProducer = client(address.parse().unwrap()).set("transactional.id", "x").create().unwrap();
    blocking(move || successor.init_transactions(PATIENCE)).await.unwrap();
    let (a, b) = (
        values(&read_all(address.parse().unwrap(), "a", 1, "read_committed").await),
        values(&read_all(address.parse().unwrap(), "b", 1, "read_committed").await),
    );
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(a, b, "both topics hold the same transactions");
    assert!(committed.len() > 10, "there was load: {}", committed.len());
    let mut once = a.clone();
    once.sort();
    once.dedup();
    assert_eq!(once.len(), a.len(), "nothing is there twice");
    for id in &committed {
        assert!(once.binary_search(id).is_ok(), "committed transaction {id} is there");
    }
}
