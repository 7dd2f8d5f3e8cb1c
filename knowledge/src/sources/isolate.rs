//! Reading a document in a process of its own.
//!
//! Libraries that read PDF, office formats and web pages can be made to panic, to overflow the stack, to run for ever or to ask
//! for all memory, and only the end of a process takes all of that back. The program that hosts this crate names itself with
//! [`isolate_with`] and calls [`run_isolated`] when it is started with [`ISOLATED_COMMAND`]; without that, as in tests of this
//! crate, documents are read in the process that asks.
//!
//! - `ISO-1` the reading process has no environment, no files and no connections: bytes come on stdin, the result goes to stdout.
//!   One whose library takes only files has an empty folder, which is gone afterwards however it ends.
//! - `ISO-2` its memory, its processor time and the size of its answer are limited; it is ended after [`DEADLINE`].

use std::ffi::OsString;
use std::io::{Read, Write};
use std::path::PathBuf;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::{OnceLock, mpsc};
use std::time::Duration;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use super::builder::MAX_TEXT_BYTES;
use super::table::{Cell, Table};
use super::{ExtractedText, Fault, PageStart, Section, Source, SourceError, by_name};

/// The first argument of a process that reads one document.
pub const ISOLATED_COMMAND: &str = "read-document";

/// How long a document may be read.
pub const DEADLINE: Duration = Duration::from_secs(60);

/// Most bytes of address space of the reading process.
pub const MAX_MEMORY_BYTES: u64 = 2 << 30;

/// The same of one with a folder: the engine of the warehouse is in it, with a limit of its own, and all rows beside it.
const MAX_ENGINE_MEMORY_BYTES: u64 = 4 << 30;

/// Most bytes of a file, and most files that are open, in a reading process with a folder.
const MAX_FOLDER_FILE_BYTES: u64 = 1 << 30;
const MAX_FOLDER_FILES: u64 = 64;

/// Most bytes of its answer: the text in JSON, where every character may be escaped.
const MAX_ANSWER_BYTES: u64 = 3 * MAX_TEXT_BYTES as u64;

/// Stack for the reading itself.
const STACK_BYTES: usize = 64 << 20;

static PROGRAM: OnceLock<PathBuf> = OnceLock::new();

/// Names the program that reads hostile documents when it is started with [`ISOLATED_COMMAND`]. Counts once.
pub fn isolate_with(program: PathBuf) {
    let _ = PROGRAM.set(program);
}

/// Takes the text out of a document, apart from this process where its format asks for it. Blocks up to [`DEADLINE`].
pub fn extract(source: &dyn Source, name: &str, bytes: &[u8]) -> Result<ExtractedText, SourceError> {
    let Some(program) = reader_of(source) else { return source.extract(name, bytes) };
    match ask(program, source, Task::Text, name, bytes)? {
        Answer::Text(text) => Ok(text.into()),
        Answer::Tables(_) => Err(crashed(name, "it gave another answer than was asked for")),
    }
}

/// Takes the tables out of a document, in the same way.
pub fn tables(source: &dyn Source, name: &str, bytes: &[u8]) -> Result<Vec<Table>, SourceError> {
    let Some(program) = reader_of(source) else { return source.tables(name, bytes) };
    match ask(program, source, Task::Tables, name, bytes)? {
        Answer::Tables(tables) => Ok(tables.into_iter().map(Table::from).collect()),
        Answer::Text(_) => Err(crashed(name, "it gave another answer than was asked for")),
    }
}

/// The program that reads documents of a source, where this process doesn't.
fn reader_of(source: &dyn Source) -> Option<&'static PathBuf> {
    PROGRAM.get().filter(|_| source.hostile() || source.needs_folder())
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Task {
    Text,
    Tables,
}

impl Task {
    fn name(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Tables => "tables",
        }
    }
}

#[derive(Debug, Serialize, Deserialize)]
enum Answer {
    Text(WireText),
    Tables(Vec<WireTable>),
}

#[derive(Debug, Serialize, Deserialize)]
struct WireText {
    text: String,
    title: Option<String>,
    sections: Vec<(usize, u8, String)>,
    pages: Vec<(i32, usize)>,
    language: Option<String>,
    author: Option<String>,
    encoding: Option<String>,
    notes: Vec<String>,
}

#[derive(Debug, Serialize, Deserialize)]
struct WireTable {
    name: String,
    columns: Vec<String>,
    types: Vec<String>,
    rows: Vec<Vec<WireCell>>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(untagged)]
enum WireCell {
    Null(()),
    Bool(bool),
    Int(i64),
    Float(f64),
    Text(String),
}

#[derive(Debug, Serialize, Deserialize)]
struct WireError {
    code: String,
    message: String,
    hint: Option<String>,
}

type Told = Result<Answer, WireError>;

impl From<WireText> for ExtractedText {
    fn from(wire: WireText) -> Self {
        let sections =
            wire.sections.into_iter().map(|(start, level, heading)| Section { start, level, heading }).collect();
        let pages = wire.pages.into_iter().map(|(page, start)| PageStart { page, start }).collect();
        let WireText { text, title, language, author, encoding, notes, .. } = wire;
        Self { text, title, sections, pages, language, author, encoding, notes }
    }
}

impl From<ExtractedText> for WireText {
    fn from(text: ExtractedText) -> Self {
        let sections =
            text.sections.into_iter().map(|section| (section.start, section.level, section.heading)).collect();
        let pages = text.pages.into_iter().map(|page| (page.page, page.start)).collect();
        let ExtractedText { text, title, language, author, encoding, notes, .. } = text;
        Self { text, title, sections, pages, language, author, encoding, notes }
    }
}

impl From<WireTable> for Table {
    fn from(wire: WireTable) -> Self {
        let cell = |cell| match cell {
            WireCell::Null(()) => Cell::Null,
            WireCell::Bool(value) => Cell::Bool(value),
            WireCell::Int(value) => Cell::Int(value),
            WireCell::Float(value) => Cell::Float(value),
            WireCell::Text(text) => Cell::Text(text),
        };
        let rows = wire.rows.into_iter().map(move |row| Ok(row.into_iter().map(cell).collect()));
        Self { name: wire.name, columns: wire.columns, types: wire.types, rows: Box::new(rows) }
    }
}

impl WireTable {
    fn of(table: Table) -> Result<Self, SourceError> {
        let cell = |cell| match cell {
            Cell::Null => WireCell::Null(()),
            Cell::Bool(value) => WireCell::Bool(value),
            Cell::Int(value) => WireCell::Int(value),
            Cell::Float(value) => WireCell::Float(value),
            Cell::Text(text) => WireCell::Text(text),
        };
        let rows =
            table.rows.map(|row| row.map(|row| row.into_iter().map(cell).collect())).collect::<Result<_, _>>()?;
        Ok(Self { name: table.name, columns: table.columns, types: table.types, rows })
    }
}

/// Starts the reading process and waits for its answer.
fn ask(program: &PathBuf, source: &dyn Source, task: Task, name: &str, bytes: &[u8]) -> Result<Answer, SourceError> {
    let mut command = Command::new(program);
    command.args([ISOLATED_COMMAND, source.name(), task.name()]).env_clear().current_dir("/");
    // Where shared libraries are is all that it may know.
    command.envs(std::env::var_os("LD_LIBRARY_PATH").map(|path| ("LD_LIBRARY_PATH", path)));
    let folder = source.needs_folder().then(tempfile::tempdir).transpose();
    let folder = folder.map_err(|error| crashed(name, &format!("it has no folder to be read in: {error}")))?;
    command.envs(folder.as_ref().map(|folder| ("TMPDIR", folder.path())));
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command
        .spawn()
        .map_err(|error| crashed(name, &format!("the process that reads it can't be started: {error}")))?;
    let (input, output) = (child.stdin.take(), child.stdout.take());
    let child = Mutex::new(child);
    let watched = &child;
    let (done, watch) = mpsc::channel::<()>();
    let mut answer = Vec::new();
    let late = std::thread::scope(|scope| {
        scope.spawn(move || {
            if let Some(mut input) = input {
                // A reader that has seen enough closes its end.
                let _ = send(&mut input, name, bytes);
            }
        });
        let watchdog = scope.spawn(move || {
            let late = watch.recv_timeout(DEADLINE) == Err(mpsc::RecvTimeoutError::Timeout);
            if late {
                let _ = watched.lock().kill();
            }
            late
        });
        if let Some(output) = output {
            let _ = output.take(MAX_ANSWER_BYTES).read_to_end(&mut answer);
        }
        drop(done);
        watchdog.join().unwrap_or(false)
    });
    let mut child = child.into_inner();
    // An answer that is cut leaves a writer behind that waits for its reader.
    if answer.len() as u64 >= MAX_ANSWER_BYTES {
        let _ = child.kill();
    }
    let status = child.wait().map_err(|error| crashed(name, &error.to_string()))?;
    if late {
        return Err(timed_out(name));
    }
    heard(name, status, &answer)
}

fn heard(name: &str, status: ExitStatus, answer: &[u8]) -> Result<Answer, SourceError> {
    use std::os::unix::process::ExitStatusExt;
    match serde_json::from_slice::<Told>(answer) {
        Ok(Ok(answer)) if status.success() => Ok(answer),
        Ok(Err(WireError { code, message, hint })) => Err(SourceError::Told { code: known_code(&code), message, hint }),
        Ok(Ok(_)) | Err(_) => match status.signal() {
            Some(libc::SIGXCPU | libc::SIGKILL) => Err(timed_out(name)),
            Some(signal) => {
                Err(crashed(name, &format!("its reader ended by signal {signal}, as when memory or stack run out")))
            }
            None => Err(crashed(name, "its reader gave up")),
        },
    }
}

/// A code that reading a document can end with; anything else is a defect of the reader.
fn known_code(told: &str) -> &'static str {
    const OF_TEXT: [&str; 3] = ["binary_content", "bad_encoding", "empty_document"];
    let known = OF_TEXT.into_iter().chain(Fault::ALL.map(Fault::code));
    known.into_iter().find(|code| *code == told).unwrap_or(Fault::ExtractionFailed.code())
}

fn crashed(name: &str, reason: &str) -> SourceError {
    SourceError::fault(
        name,
        Fault::ExtractionFailed,
        format!("can't be read: {reason}"),
        "convert the document to plain text and ingest that; a report with the document helps to fix the reader",
    )
}

fn timed_out(name: &str) -> SourceError {
    SourceError::fault(
        name,
        Fault::TimedOut,
        format!("takes more than {} s to read", DEADLINE.as_secs()),
        "split the document, or convert it to plain text",
    )
}

/// The name with its length, then the document to the end.
fn send(input: &mut impl Write, name: &str, bytes: &[u8]) -> std::io::Result<()> {
    let length = u32::try_from(name.len()).map_err(std::io::Error::other)?;
    input.write_all(&length.to_le_bytes())?;
    input.write_all(name.as_bytes())?;
    input.write_all(bytes)
}

/// What the reading process does: one document from stdin, one answer to stdout. `arguments` are those behind
/// [`ISOLATED_COMMAND`]. Says whether there was an answer.
pub fn run_isolated(arguments: &[OsString]) -> bool {
    let job = arguments.first().zip(arguments.get(1)).and_then(|(source, task)| source.to_str().zip(task.to_str()));
    let Some((source, task)) = job.and_then(|(source, task)| Some((by_name(source).ok()?, task_of(task)?))) else {
        return false;
    };
    if let Err(error) = limit_self(source.needs_folder()) {
        tracing::error!(%error, "limits can't be set");
        return false;
    }
    let mut input = Vec::new();
    if std::io::stdin().read_to_end(&mut input).is_err() {
        return false;
    }
    let Some((name, bytes)) = received(&input) else { return false };
    let told = std::thread::scope(|scope| {
        let reading =
            std::thread::Builder::new().stack_size(STACK_BYTES).spawn_scoped(scope, || read(source, task, name, bytes));
        reading.ok().and_then(|reading| reading.join().ok())
    });
    let told = told.unwrap_or_else(|| Err(crashed(name, "its reader failed")));
    let told: Told = told.map_err(|error| WireError {
        code: error.code().to_owned(),
        message: error.to_string(),
        hint: error.hint(),
    });
    let mut output = std::io::stdout().lock();
    serde_json::to_vec(&told).is_ok_and(|answer| output.write_all(&answer).and_then(|()| output.flush()).is_ok())
}

fn task_of(name: &str) -> Option<Task> {
    [Task::Text, Task::Tables].into_iter().find(|task| task.name() == name)
}

fn received(input: &[u8]) -> Option<(&str, &[u8])> {
    let (length, rest) = input.split_first_chunk::<4>()?;
    let (name, bytes) = rest.split_at_checked(u32::from_le_bytes(*length) as usize)?;
    Some((std::str::from_utf8(name).ok()?, bytes))
}

fn read(source: &dyn Source, task: Task, name: &str, bytes: &[u8]) -> Result<Answer, SourceError> {
    match task {
        Task::Text => source.extract(name, bytes).map(|text| Answer::Text(text.into())),
        Task::Tables => {
            let tables = source.tables(name, bytes)?;
            tables.into_iter().map(WireTable::of).collect::<Result<_, _>>().map(Answer::Tables)
        }
    }
}

/// Gives up what a reader does not need, for good.
fn limit_self(has_folder: bool) -> std::io::Result<()> {
    let seconds = DEADLINE.as_secs();
    let (memory, file_bytes, files) = if has_folder {
        (MAX_ENGINE_MEMORY_BYTES, MAX_FOLDER_FILE_BYTES, MAX_FOLDER_FILES)
    } else {
        // No file and no connection can be opened beyond what is open.
        (MAX_MEMORY_BYTES, 0, 3)
    };
    for (resource, limit) in [
        (libc::RLIMIT_AS, memory),
        (libc::RLIMIT_CPU, seconds),
        (libc::RLIMIT_FSIZE, file_bytes),
        (libc::RLIMIT_CORE, 0),
        (libc::RLIMIT_NOFILE, files),
    ] {
        let limit = libc::rlimit { rlim_cur: limit, rlim_max: limit };
        // SAFETY: setrlimit only reads the struct, which lives through the call.
        #[allow(unsafe_code)]
        let result = unsafe { libc::setrlimit(resource, &limit) };
        if result != 0 {
            return Err(std::io::Error::last_os_error());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn given_a_document_when_sent_then_its_name_and_bytes_arrive_and_anything_shorter_does_not() {
        let mut sent = Vec::new();
        send(&mut sent, "ä.pdf", b"bytes").unwrap();
        assert_eq!(received(&sent), Some(("ä.pdf", &b"bytes"[..])));
        for cut in 0..10 {
            assert_eq!(received(&sent[..cut]), None);
        }
    }

    #[test]
    fn given_a_program_that_is_no_reader_when_asked_then_the_document_fails_by_name() {
        let source = by_name("text").unwrap();
        for (program, told) in [
            ("/bin/false", "gave up"),
            ("/bin/true", "gave up"),
            ("/nowhere", "can't be started"),
            ("/bin/echo", "gave up"),
        ] {
            let error = ask(&program.into(), source, Task::Text, "a.pdf", b"x").unwrap_err();
            assert_eq!(error.code(), "extraction_failed", "{program}");
            assert!(error.to_string().contains("a.pdf") && error.to_string().contains(told), "{error}");
        }
    }

    #[test]
    fn given_tables_when_they_travel_then_every_kind_of_value_is_the_same() {
        let row = vec![Cell::Null, Cell::Bool(true), Cell::Int(-3), Cell::Float(2.0), Cell::Text("1".into())];
        let header = (0..5).map(|n| n.to_string()).collect();
        let wire = WireTable::of(Table::of("t", header, vec![row.clone()]).typed(vec!["BIGINT".into()])).unwrap();
        let json = serde_json::to_vec(&wire).unwrap();
        let back = Table::from(serde_json::from_slice::<WireTable>(&json).unwrap());
        assert_eq!(back.types, ["BIGINT"]);
        assert_eq!(back.rows.map(Result::unwrap).collect::<Vec<_>>(), [row]);
    }
}
