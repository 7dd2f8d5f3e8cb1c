use std::ffi::OsString;
use std::io::Write;
use std::net::TcpListener;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

/// A folder with settings of its own; no setting of whoever runs the tests reaches it.
pub(crate) struct Place {
    folder: tempfile::TempDir,
    settings: Vec<(String, OsString)>,
}

/// What a command did.
#[derive(Debug)]
pub(crate) struct Done {
    pub code: i32,
    pub stdout: String,
    pub stderr: String,
}

impl Done {
    fn of(output: Output) -> Self {
        let text = |bytes| String::from_utf8(bytes).unwrap();
        let code = output.status.code().unwrap_or(-1);
        Self { code, stdout: text(output.stdout), stderr: text(output.stderr) }
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }
}

pub(crate) fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

impl Place {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let place = Self { folder, settings: Vec::new() };
        // A model server that is down: nothing here needs a model, and what does must say so.
        place
            .with("RIVERRUN_MODEL_RUNTIME_BASE_URL", "http://127.0.0.1:9")
            .with("RIVERRUN_BROKER_PORT", "0")
            .with("RIVERRUN_MODELS_OFFLINE", "true")
    }

    pub(crate) fn with(self, name: &str, value: impl ToString) -> Self {
        self.with_bytes(name, value.to_string().as_bytes())
    }

    /// A variable of any bytes, as the system has them.
    pub(crate) fn with_bytes(mut self, name: &str, value: &[u8]) -> Self {
        self.settings.retain(|(known, _)| known != name);
        self.settings.push((name.to_owned(), OsString::from_vec(value.to_vec())));
        self
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn data(&self) -> PathBuf {
        self.path().join("data")
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_riverrun"));
        command.args(arguments).current_dir(self.path()).stdin(Stdio::null());
        for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("RIVERRUN_")) {
            command.env_remove(name);
        }
        command.env("HOME", self.path()).env("RIVERRUN_DATA_DIR", self.data()).envs(self.settings.iter().cloned());
        command
    }

    /// Runs `riverrun ARGUMENT…` to its end.
    pub(crate) fn run(&self, arguments: &[&str]) -> Done {
        Done::of(self.command(arguments).output().unwrap())
    }

    /// The same with something on its input.
    pub(crate) fn run_with(&self, arguments: &[&str], input: &[u8]) -> Done {
        let mut command = self.command(arguments);
        let command = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        child.stdin.take().unwrap().write_all(input).unwrap();
        Done::of(child.wait_with_output().unwrap())
    }

    /// Starts a server and returns when it answers.
    pub(crate) fn serve(&self) -> Server {
        self.serve_logging_to(Stdio::null())
    }

    /// The same with a log.
    pub(crate) fn serve_logging_to(&self, log: impl Into<Stdio>) -> Server {
        let child = self.command(&["serve"]).stdout(Stdio::null()).stderr(log).spawn().unwrap();
        let mut server = Server { child, url: String::new() };
        let owner = self.data().join("riverrun.json");
        server.url = wait_for("the server to answer", || {
            assert!(server.child.try_wait().unwrap().is_none(), "serve ended by itself");
            let owner: Value = serde_json::from_slice(&std::fs::read(&owner).ok()?).ok()?;
            owner["api_url"].as_str().map(str::to_owned)
        });
        server
    }
}

/// A running server; killed when the test ends early.
pub(crate) struct Server {
    child: Child,
    pub url: String,
}

impl Server {
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn signal(&self, name: &str) {
        assert!(Command::new("kill").args([name, &self.pid().to_string()]).status().unwrap().success());
    }

    /// Waits for its end; gives the exit code.
    pub(crate) fn end(&mut self) -> Option<i32> {
        wait_for("the server to end", || self.child.try_wait().unwrap()).code()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Polls until there is something.
pub(crate) fn wait_for<T>(what: &str, mut found: impl FnMut() -> Option<T>) -> T {
    let until = Instant::now() + Duration::from_secs(60);
    loop {
        if let Some(found) = found() {
            return found;
        }
        assert!(Instant::now() < until, "waited in vain for {what}");
        std::thread::park_timeout(Duration::from_millis(20));
    }
}
