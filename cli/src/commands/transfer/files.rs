//! Files that are carried as they are: tools, tokens (hashes), warehouse tables; and a list of settings to be read.

use std::fs;
use std::io::{self, Read};
use std::path::{Component, Path, PathBuf};

use sha2::{Digest, Sha256};

use super::manifest::FileEntry;
use crate::error::{CliError, Exit};
use crate::settings::Settings;

/// Below the folder of an archive.
const FOLDER: &str = "files";
/// Settings of the process that made the archive, without secrets. For people: `import` changes no settings.
pub(super) const SETTINGS: &str = "settings.env";
/// Most files that are carried.
const MAX_FILES: usize = 100_000;

/// What is carried, by its path below the data folder.
fn sources(settings: &Settings) -> Result<Vec<(String, PathBuf)>, CliError> {
    let mut found = Vec::new();
    let named = [("tools.toml", Some(&settings.tools_file)), ("tokens.json", settings.api.tokens_file.as_ref())];
    for (name, path) in named {
        if let Some(path) = path.filter(|path| path.is_file()) {
            found.push((name.to_owned(), path.clone()));
        }
    }
    let warehouse = settings.data_dir.join("warehouse");
    if warehouse.is_dir() {
        walk(&warehouse, "warehouse", &mut found).map_err(|error| io_failed("reading", &warehouse, &error))?;
    }
    if found.len() > MAX_FILES {
        return Err(CliError::new(
            Exit::Failed,
            format!("there are {} files; at most {MAX_FILES} are carried", found.len()),
        )
        .hint("remove tables that are not needed: riverrun warehouse tables"));
    }
    found.sort();
    Ok(found)
}

fn walk(folder: &Path, name: &str, found: &mut Vec<(String, PathBuf)>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let Some(own) = entry.file_name().to_str().map(str::to_owned) else { continue };
        let (path, name) = (entry.path(), format!("{name}/{own}"));
        let kind = entry.file_type()?;
        if kind.is_dir() {
            walk(&path, &name, found)?;
        } else if kind.is_file() {
            found.push((name, path));
        }
    }
    Ok(())
}

/// Copies them into an archive.
pub(super) fn save(settings: &Settings, archive: &Path) -> Result<Vec<FileEntry>, CliError> {
    let mut entries = Vec::new();
    for (name, source) in sources(settings)? {
        let target = archive.join(FOLDER).join(&name);
        copy(&source, &target)?;
        let (size_bytes, sha256) = sum(&target)?;
        entries.push(FileEntry { path: name, size_bytes, sha256 });
    }
    let path = archive.join(SETTINGS);
    fs::write(&path, settings_text(settings.shown.iter().map(|(name, value)| (name.as_str(), value.as_str()))))
        .map_err(|error| io_failed("writing", &path, &error))?;
    Ok(entries)
}

/// Settings as a `.env` file has them. The data folder is not among them: whoever took it over would work on the one that was left.
fn settings_text<'s>(settings: impl Iterator<Item = (&'s str, &'s str)>) -> String {
    let head =
        "# Of the installation that was exported, without its data folder: take over what holds for the new one.\n";
    let taken = settings.filter(|(name, _)| *name != "RIVERRUN_DATA_DIR");
    std::iter::once(head.to_owned()).chain(taken.map(|(name, value)| format!("{name}={value}\n"))).collect()
}

/// Where a file of an archive goes; refused when it would leave the data folder.
fn target(settings: &Settings, entry: &FileEntry) -> Result<PathBuf, CliError> {
    let path = Path::new(&entry.path);
    let plain = path.components().all(|part| matches!(part, Component::Normal(_)));
    let known = matches!(entry.path.as_str(), "tools.toml" | "tokens.json") || entry.path.starts_with("warehouse/");
    if !plain || !known {
        return Err(CliError::new(
            Exit::Refused,
            format!("the archive holds {:?}, which is no file of a data folder", entry.path),
        )
        .hint("use an archive that riverrun export made"));
    }
    Ok(match entry.path.as_str() {
        "tools.toml" => settings.tools_file.clone(),
        "tokens.json" => settings.api.tokens_file.clone().unwrap_or_else(|| settings.data_dir.join(path)),
        _ => settings.data_dir.join(path),
    })
}

/// Checks all of them before anything is written: the archive's are whole, and the target has none that differs.
pub(super) fn check(settings: &Settings, archive: &Path, entries: &[FileEntry]) -> Result<(), CliError> {
    for entry in entries {
        let there = target(settings, entry)?;
        let (size_bytes, sha256) = sum(&archive.join(FOLDER).join(&entry.path))?;
        if (size_bytes, &sha256) != (entry.size_bytes, &entry.sha256) {
            return Err(CliError::new(Exit::Failed, format!("file {} of the archive is damaged", entry.path))
                .hint("copy the archive again from where it was made"));
        }
        if there.is_file() && sum(&there)?.1 != entry.sha256 {
            return Err(CliError::new(
                Exit::Refused,
                format!("{} is there and differs from the archive's", there.display()),
            )
            .hint("move it away, or import into an empty data folder"));
        }
    }
    Ok(())
}

/// Puts them into the data folder.
pub(super) fn restore(settings: &Settings, archive: &Path, entries: &[FileEntry]) -> Result<(), CliError> {
    for entry in entries {
        copy(&archive.join(FOLDER).join(&entry.path), &target(settings, entry)?)?;
    }
    Ok(())
}

/// In one piece; permissions come along, so that tokens stay their owner's.
fn copy(source: &Path, target: &Path) -> Result<(), CliError> {
    let draft = target.with_extension("part");
    let copied = || -> io::Result<()> {
        if let Some(folder) = target.parent() {
            fs::create_dir_all(folder)?;
        }
        fs::copy(source, &draft)?;
        fs::rename(&draft, target)
    };
    copied().map_err(|error| io_failed("writing", target, &error))
}

fn sum(path: &Path) -> Result<(u64, String), CliError> {
    let read = || -> io::Result<(u64, String)> {
        let (mut file, mut hash, mut size) = (fs::File::open(path)?, Sha256::new(), 0u64);
        let mut buffer = vec![0; 64 << 10];
        loop {
            let count = file.read(&mut buffer)?;
            if count == 0 {
                return Ok((size, format!("{:x}", hash.finalize())));
            }
            hash.update(&buffer[..count]);
            size += count as u64;
        }
    };
    read().map_err(|error| io_failed("reading", path, &error))
}

fn io_failed(doing: &str, path: &Path, error: &io::Error) -> CliError {
    CliError::new(Exit::Failed, format!("{doing} {} failed: {error}", path.display())).hint("check the disk")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn given_settings_when_they_are_written_for_another_place_then_the_data_folder_is_not_among_them() {
        let settings = [("RIVERRUN_DATA_DIR", "/srv/old"), ("RIVERRUN_DEFAULT_CHAT_MODEL", "m")];
        let text = settings_text(settings.into_iter());
        let lines: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
        assert_eq!(lines, ["RIVERRUN_DEFAULT_CHAT_MODEL=m"]);
    }
}
