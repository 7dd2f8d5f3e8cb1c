//! Where merged models stand: in the folder of models, as `<model>@<version>`, so that the local runtime finds them as it finds
//! any other. `<model>` itself is a link to the version that is `ready`.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use crate::checkpoint::sync;
use crate::error::TrainingError;

const MAX_NAME: usize = 64;

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
    Ok(folder)
}

/// Puts a folder in the place of a version, wholly or not at all.
pub fn publish(staged: &Path, models: &Path, model: &str, version: i64) -> Result<PathBuf, TrainingError> {
    let folder = merged_folder(models, model, version);
    sync(staged)?;
    if folder.exists() {
        fs::remove_dir_all(&folder).map_err(TrainingError::io("removing", &folder))?;
    }
    fs::rename(staged, &folder).map_err(TrainingError::io("renaming", staged))?;
    sync(models)?;
    Ok(folder)
}

/// Takes the folder of a version away that nobody was told of.
pub fn withdraw(models: &Path, model: &str, version: i64) -> Result<(), TrainingError> {
    let folder = merged_folder(models, model, version);
    match fs::remove_dir_all(&folder) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(TrainingError::io("removing", &folder)(error)),
        Ok(()) | Err(_) => Ok(()),
    }
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
    let beside = models.join(format!(".{model}.link"));
    let _ = fs::remove_file(&beside); // left by a crash, if it is there
    std::os::unix::fs::symlink(format!("{model}@{version}"), &beside).map_err(TrainingError::io("linking", &beside))?;
    fs::rename(&beside, &link).map_err(TrainingError::io("renaming", &beside))?;
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
        withdraw(models.path(), "poet", 2).unwrap();
        withdraw(models.path(), "poet", 2).unwrap();
        assert!(!merged_folder(models.path(), "poet", 2).exists() && merged_folder(models.path(), "poet", 1).exists());
        fs::create_dir(models.path().join("own")).unwrap();
        assert!(point(models.path(), "own", Some(1)).is_err() && models.path().join("own").is_dir());
    }
}
