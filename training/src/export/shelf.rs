//! Where merged models stand: in the folder of models, as `<model>@<version>`, so that the local runtime finds them as it finds
//! any other. `<model>` itself is a link to the version that is `ready`.
//!
//! Trainers of one model may share the folder. So a version is put there by whoever has the model's [`Turn`], and its folder says
//! which training made it: the log decides which number that training has, and [`settle`] follows it.

use std::fs::{self, File, TryLockError};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::checkpoint::sync;
use crate::error::TrainingError;

const MAX_NAME: usize = 64;
/// In a version's folder: the training that made it.
const MAKER: &str = "training";
/// Tells the links apart that one process makes at once.
static LINKS: AtomicU64 = AtomicU64::new(0);

/// The right to put versions of a model into a folder, for as long as it is kept. Ends with its process, too.
#[derive(Debug)]
pub struct Turn {
    _locked: File,
}

/// The turn, where nobody else has it.
pub fn take_turn(models: &Path, model: &str) -> Result<Option<Turn>, TrainingError> {
    fs::create_dir_all(models).map_err(TrainingError::io("creating", models))?;
    let path = models.join(format!(".{model}.turn"));
    let file = File::create(&path).map_err(TrainingError::io("creating", &path))?;
    match file.try_lock() {
        Ok(()) => Ok(Some(Turn { _locked: file })),
        Err(TryLockError::WouldBlock) => Ok(None),
        Err(TryLockError::Error(error)) => Err(TrainingError::io("locking", &path)(error)),
    }
}

/// Refuses names that could not stand in a path or would be read as something else.
pub fn check_name(name: &str) -> Result<(), TrainingError> {
    let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '-' | '_' | '.');
    let starts = name.starts_with(|c: char| c.is_ascii_lowercase() || c.is_ascii_digit());
    if starts && name.len() <= MAX_NAME && name.chars().all(fits) {
        return Ok(());
    }
    let shown: String = name.chars().take(80).collect();
    let reason = format!(
        "{shown:?} is no name: 1 to {MAX_NAME} lower-case letters, digits, '-', '_' and '.', a letter or digit first"
    );
    Err(TrainingError::Setting { field: "name", reason })
}

/// The folder of a version.
pub fn merged_folder(models: &Path, model: &str, version: i64) -> PathBuf {
    models.join(format!("{model}@{version}"))
}

fn staging(models: &Path, job: &str) -> PathBuf {
    models.join(format!(".{job}.staging"))
}

/// Takes away what a failed export left.
pub fn discard_staging(models: &Path, job: &str) {
    let folder = staging(models, job);
    if let Err(error) = fs::remove_dir_all(&folder)
        && error.kind() != ErrorKind::NotFound
    {
        tracing::warn!(path = %folder.display(), error = %error, "what a failed export left stays");
    }
}

/// A folder that no model is looked for in, on the same disk; made empty.
pub fn staging_folder(models: &Path, job: &str) -> Result<PathBuf, TrainingError> {
    let folder = staging(models, job);
    if folder.exists() {
        fs::remove_dir_all(&folder).map_err(TrainingError::io("removing", &folder))?;
    }
    fs::create_dir_all(&folder).map_err(TrainingError::io("creating", &folder))?;
    let maker = folder.join(MAKER);
    fs::write(&maker, job).map_err(TrainingError::io("writing", &maker))?;
    sync(&maker)?;
    Ok(folder)
}

/// Puts a folder in the place of a version, wholly or not at all.
pub fn publish(staged: &Path, models: &Path, model: &str, version: i64) -> Result<PathBuf, TrainingError> {
    let folder = merged_folder(models, model, version);
    sync(staged)?;
    replace(staged, &folder)?;
    sync(models)?;
    Ok(folder)
}

fn replace(from: &Path, to: &Path) -> Result<(), TrainingError> {
    if to.exists() {
        fs::remove_dir_all(to).map_err(TrainingError::io("removing", to))?;
    }
    fs::rename(from, to).map_err(TrainingError::io("renaming", from))
}

/// Lets what a training has put there stand under the number that the log gives it, and nowhere where it gives none.
pub fn settle(models: &Path, model: &str, job: &str, number: Option<i64>) -> Result<(), TrainingError> {
    let (right, wrong): (Vec<PathBuf>, Vec<PathBuf>) = {
        let place = number.map(|number| merged_folder(models, model, number));
        made_by(models, model, job)?.into_iter().partition(|folder| Some(folder) == place.as_ref())
    };
    if wrong.is_empty() {
        return Ok(());
    }
    let mut wrong = wrong.into_iter();
    if let (Some(number), true) = (number, right.is_empty())
        && let Some(first) = wrong.next()
    {
        replace(&first, &merged_folder(models, model, number))?;
    }
    for folder in wrong {
        fs::remove_dir_all(&folder).map_err(TrainingError::io("removing", &folder))?;
    }
    sync(models)
}

/// The folders of a model's versions that a training has made.
fn made_by(models: &Path, model: &str, job: &str) -> Result<Vec<PathBuf>, TrainingError> {
    let prefix = format!("{model}@");
    let entries = match fs::read_dir(models) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        read => read.map_err(TrainingError::io("reading", models))?,
    };
    let is_own = |folder: &Path| fs::read_to_string(folder.join(MAKER)).is_ok_and(|maker| maker == job);
    let mut own: Vec<PathBuf> = entries
        .flatten()
        .filter(|entry| entry.file_name().to_str().is_some_and(|name| name.starts_with(&prefix)))
        .map(|entry| entry.path())
        .filter(|folder| is_own(folder))
        .collect();
    own.sort();
    Ok(own)
}

/// Lets the model's name mean a version, or none. What is no link of ours is never touched.
pub fn point(models: &Path, model: &str, version: Option<i64>) -> Result<(), TrainingError> {
    let link = models.join(model);
    match fs::symlink_metadata(&link) {
        Ok(found) if !found.file_type().is_symlink() => {
            let reason = format!("{} is a model of its own; train under another name", link.display());
            return Err(TrainingError::Setting { field: "name", reason });
        }
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(TrainingError::io("reading", &link)(error)),
        Ok(_) | Err(_) => {}
    }
    let Some(version) = version else {
        return match fs::remove_file(&link) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(TrainingError::io("removing", &link)(error)),
            Ok(()) | Err(_) => Ok(()),
        };
    };
    // A name of its own: a trainer and somebody who sets a stage may point at once, and the last one counts.
    let own = format!("{}.{}", std::process::id(), LINKS.fetch_add(1, Ordering::Relaxed));
    let beside = models.join(format!(".{model}.{own}.link"));
    let _ = fs::remove_file(&beside); // left by a crash, if it is there
    std::os::unix::fs::symlink(format!("{model}@{version}"), &beside).map_err(TrainingError::io("linking", &beside))?;
    if let Err(error) = fs::rename(&beside, &link) {
        let _ = fs::remove_file(&beside);
        return Err(TrainingError::io("renaming", &beside)(error));
    }
    sync(models)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn given_names_then_only_those_that_can_stand_in_a_path_are_taken() {
        for name in ["a", "poet-2.b_c", "7b"] {
            assert!(check_name(name).is_ok(), "{name}");
        }
        for name in ["", ".", "..", "-a", "A", "a/b", "a@1", "a b", "ä", &"x".repeat(65)] {
            assert_eq!(check_name(name).unwrap_err().code(), "invalid_request", "{name}");
        }
    }

    #[test]
    fn given_versions_then_the_name_means_the_one_that_it_was_pointed_to() {
        let models = tempfile::tempdir().unwrap();
        for version in [1, 2] {
            let staged = staging_folder(models.path(), "job").unwrap();
            fs::write(staged.join("model.gguf"), format!("{version}")).unwrap();
            publish(&staged, models.path(), "poet", version).unwrap();
            point(models.path(), "poet", Some(version)).unwrap();
            let read = fs::read_to_string(models.path().join("poet/model.gguf")).unwrap();
            assert_eq!(read, version.to_string());
        }
        point(models.path(), "poet", None).unwrap();
        point(models.path(), "poet", None).unwrap();
        assert!(!models.path().join("poet").exists() && merged_folder(models.path(), "poet", 2).exists());
        fs::create_dir(models.path().join("own")).unwrap();
        assert!(point(models.path(), "own", Some(1)).is_err() && models.path().join("own").is_dir());
    }

    /// Publishes a file that holds the training's name.
    fn put(models: &Path, job: &str, version: i64) {
        let staged = staging_folder(models, job).unwrap();
        fs::write(staged.join("model.gguf"), job).unwrap();
        publish(&staged, models, "poet", version).unwrap();
    }

    /// What stands under a number.
    fn at(models: &Path, version: i64) -> Option<String> {
        fs::read_to_string(merged_folder(models, "poet", version).join("model.gguf")).ok()
    }

    #[test]
    fn given_a_number_that_the_log_gave_to_another_then_what_was_made_moves_to_its_own_and_the_others_stay() {
        let models = tempfile::tempdir().unwrap();
        let models = models.path();
        put(models, "a", 1);
        put(models, "b", 2);
        settle(models, "poet", "b", Some(3)).unwrap();
        assert_eq!((at(models, 1).as_deref(), at(models, 2), at(models, 3).as_deref()), (Some("a"), None, Some("b")));
        settle(models, "poet", "b", Some(3)).unwrap();
        assert_eq!(at(models, 3).as_deref(), Some("b"));
        // A process died between the two: the same again stands twice, and what stands rightly stays.
        put(models, "b", 4);
        settle(models, "poet", "b", Some(3)).unwrap();
        assert_eq!((at(models, 3).as_deref(), at(models, 4)), (Some("b"), None));
        settle(models, "poet", "b", None).unwrap();
        assert_eq!((at(models, 1).as_deref(), at(models, 3)), (Some("a"), None));
        settle(&models.join("nowhere"), "poet", "b", None).unwrap();
    }

    #[test]
    fn given_a_model_when_one_has_its_turn_then_nobody_else_has_until_it_is_let_go() {
        let models = tempfile::tempdir().unwrap();
        let turn = take_turn(models.path(), "poet").unwrap();
        assert!(turn.is_some() && take_turn(models.path(), "poet").unwrap().is_none());
        assert!(take_turn(models.path(), "other").unwrap().is_some());
        drop(turn);
        assert!(take_turn(models.path(), "poet").unwrap().is_some());
    }

    #[test]
    fn given_many_who_point_a_name_at_once_then_each_succeeds_and_nothing_is_left_over() {
        let models = tempfile::tempdir().unwrap();
        std::thread::scope(|scope| {
            for version in 1..=8 {
                let models = models.path();
                scope.spawn(move || (0..50).for_each(|_| point(models, "poet", Some(version)).unwrap()));
            }
        });
        let names: Vec<_> = fs::read_dir(models.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(names, ["poet"]);
    }
}
