use super::*;

fn of(memory: u64) -> Load {
    let files = Files { bytes: 1, written: Some(SystemTime::UNIX_EPOCH), adapter_bytes: 0, adapted: None };
    Load { files, memory }
}

fn key(class: Class, name: &str) -> Key {
    Key { class, name: name.to_owned() }
}

fn chat(name: &str) -> Key {
    key(Class::Chat, name)
}

fn names(map: &SlotMap) -> Vec<&str> {
    let mut names: Vec<&str> = map.slots.keys().map(|key| key.name.as_str()).collect();
    names.sort_unstable();
    names
}

fn leave_all(map: &mut SlotMap) {
    for slot in map.slots.values_mut() {
        slot.users = 0;
    }
}

const FEW: Room = Room { chats: 2, encoders: 1, bytes: u64::MAX };
const LITTLE: Room = Room { chats: 9, encoders: 9, bytes: 100 };

#[test]
fn given_a_model_that_was_replaced_under_its_name_when_it_is_claimed_then_it_is_loaded_anew() {
    let mut map = SlotMap::default();
    let first = map.claim(&chat("a"), of(1), FEW).unwrap();
    assert!(Arc::ptr_eq(&first, &map.claim(&chat("a"), of(1), FEW).unwrap()));
    let files = Files { written: Some(SystemTime::UNIX_EPOCH + Duration::from_secs(1)), ..of(1).files };
    let later = Load { files, ..of(1) };
    let known = (map.memory_of(&chat("a"), of(2).files), map.memory_of(&chat("a"), files));
    assert_eq!(known, (Some(1), None));
    assert!(!Arc::ptr_eq(&first, &map.claim(&chat("a"), later, FEW).unwrap()));
    assert_eq!(names(&map), ["a"]);
}

#[test]
fn given_an_adapter_that_was_written_anew_when_it_is_asked_for_then_it_is_another_model_on_the_same_weights() {
    let folder = tempfile::tempdir().unwrap();
    let (base, weights) = (folder.path().join("model.gguf"), folder.path().join(adapter::WEIGHTS));
    fs::write(&base, "base").unwrap();
    fs::write(&weights, "first").unwrap();
    let first = Files::of(&base, Some(folder.path()));
    assert_eq!(first, Files::of(&base, Some(folder.path())));
    assert_ne!(first, Files::of(&base, None));
    let later = SystemTime::now() + Duration::from_secs(60);
    fs::File::options().write(true).open(&weights).unwrap().set_modified(later).unwrap();
    let second = Files::of(&base, Some(folder.path()));
    assert_eq!((second.bytes, second.written), (first.bytes, first.written));
    assert_ne!(second, first);
}

#[test]
fn given_a_full_house_when_another_model_is_claimed_then_the_oldest_idle_one_goes() {
    let mut map = SlotMap::default();
    for name in ["a", "b"] {
        assert!(map.claim(&chat(name), of(1), FEW).is_some());
    }
    assert!(map.claim(&chat("c"), of(1), FEW).is_none(), "both are in use");
    leave_all(&mut map);
    assert!(map.claim(&chat("a"), of(1), FEW).is_some());
    assert!(map.claim(&chat("c"), of(1), FEW).is_some());
    assert_eq!(names(&map), ["a", "c"]);
}

#[test]
fn given_a_full_house_of_one_kind_when_it_is_claimed_from_then_the_other_kinds_stay() {
    let mut map = SlotMap::default();
    for key in [key(Class::Sentence, "s"), key(Class::Cross, "x"), chat("a")] {
        assert!(map.claim(&key, of(1), FEW).is_some());
    }
    leave_all(&mut map);
    assert!(map.claim(&key(Class::Cross, "y"), of(1), FEW).is_some());
    assert_eq!(names(&map), ["a", "s", "y"]);
}

#[test]
fn given_little_memory_when_a_large_model_is_claimed_then_as_many_go_as_must() {
    let mut map = SlotMap::default();
    for name in ["a", "b", "c"] {
        assert!(map.claim(&chat(name), of(30), LITTLE).is_some());
    }
    assert!(map.claim(&chat("large"), of(60), LITTLE).is_none(), "all are in use");
    leave_all(&mut map);
    assert!(map.claim(&chat("large"), of(60), LITTLE).is_some());
    assert_eq!(names(&map), ["c", "large"]);
    assert!(map.claim(&chat("d"), of(50), LITTLE).is_none(), "the large one is in use");
}

#[test]
fn given_one_limit_when_models_of_other_kinds_are_claimed_then_the_least_recently_used_go_whatever_they_are() {
    let mut map = SlotMap::default();
    let (embed, rerank, gguf) = (key(Class::Sentence, "embed"), key(Class::Cross, "rerank"), key(Class::Gguf, "gguf"));
    for key in [&embed, &chat("chat"), &rerank] {
        assert!(map.claim(key, of(30), LITTLE).is_some());
    }
    leave_all(&mut map);
    assert!(map.claim(&embed, of(30), LITTLE).is_some(), "it is used again");
    leave_all(&mut map);
    assert!(map.claim(&gguf, of(30), LITTLE).is_some());
    assert_eq!(names(&map), ["embed", "gguf", "rerank"], "the chat model was used longest ago");
    leave_all(&mut map);
    assert!(map.claim(&chat("chat"), of(60), LITTLE).is_some());
    assert_eq!(names(&map), ["chat", "gguf"]);
}

#[test]
fn given_a_model_in_use_that_leaves_no_room_when_another_is_claimed_then_nothing_is_unloaded_in_vain() {
    let mut map = SlotMap::default();
    assert!(map.claim(&key(Class::Sentence, "idle"), of(30), LITTLE).is_some());
    leave_all(&mut map);
    assert!(map.claim(&chat("busy"), of(60), LITTLE).is_some());
    assert!(map.claim(&key(Class::Cross, "large"), of(50), LITTLE).is_none());
    assert_eq!(names(&map), ["busy", "idle"]);
}

struct Loaded(bool);

impl Resident for Loaded {
    const CLASS: Class = Class::Sentence;

    fn is_dead(&self) -> bool {
        self.0
    }
}

async fn lease(pool: &ModelPool, name: &str, memory: u64, dead: bool) -> Result<Lease<Loaded>, ModelError> {
    let load = async { Ok(Arc::new(Loaded(dead))) };
    pool.lease(name, of(0).files, async { Ok(memory) }, load).await
}

#[tokio::test]
async fn given_a_lease_when_it_ends_then_the_model_stays_loaded_until_another_needs_its_room() {
    let pool = ModelPool::new(&ModelSettings { memory_bytes: Some(100), ..ModelSettings::default() });
    let loaded = |name: &str, bytes: u64| LoadedModel { name: name.to_owned(), bytes };
    drop(lease(&pool, "a", 60, false).await.unwrap());
    assert_eq!(pool.loaded(), [loaded("a", 60)]);
    let second = lease(&pool, "b", 70, false).await.unwrap();
    assert_eq!(pool.loaded(), [loaded("b", 70)]);
    let waits = lease(&pool, "a", 60, false);
    tokio::pin!(waits);
    assert!(futures_now(waits.as_mut()).await.is_none(), "the other one is in use");
    drop(second);
    assert!(waits.await.is_ok());
    assert_eq!(pool.loaded(), [loaded("a", 60)]);
}

#[tokio::test]
async fn given_a_model_that_died_or_failed_to_load_when_its_lease_ends_then_it_takes_no_room() {
    let pool = ModelPool::new(&ModelSettings::default());
    drop(lease(&pool, "dead", 1, true).await.unwrap());
    assert!(pool.loaded().is_empty());
    let load = async { Err::<Arc<Loaded>, _>(ModelError::internal("damaged")) };
    assert!(pool.lease("damaged", of(0).files, async { Ok(1) }, load).await.is_err());
    assert!(pool.slots.map.lock().slots.is_empty());
}

/// What a future answers without being waited for.
async fn futures_now<T>(future: impl Future<Output = T>) -> Option<T> {
    tokio::select! {
        biased;
        answer = future => Some(answer),
        () = std::future::ready(()) => None,
    }
}
