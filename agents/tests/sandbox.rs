//! Programs under their limits. Without a test harness, since this program is its own launcher.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use riverrun_agents::tools::sandbox::{self, Confinement, Finished, Invocation, LAUNCH, Sandbox, SandboxError};

fn main() -> ExitCode {
    let mut arguments = std::env::args_os().skip(1);
    if arguments.next().is_some_and(|first| first == LAUNCH) {
        eprintln!("{}", sandbox::launch(arguments));
        return ExitCode::from(sandbox::FAILED);
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        given_a_program_when_it_runs_then_it_gets_its_words_its_input_and_nothing_of_ours().await;
        given_a_program_that_does_not_start_when_it_is_run_then_the_error_says_why().await;
        given_limits_when_a_program_goes_past_them_then_it_ends().await;
        given_a_call_that_is_given_up_when_it_is_dropped_then_no_process_of_it_is_left().await;
        given_a_kernel_that_enforces_it_when_a_program_reaches_out_then_it_is_denied().await;
    });
    ExitCode::SUCCESS
}

fn sh(script: &str, argument: &str) -> Invocation {
    Invocation {
        program: "/bin/sh".into(),
        arguments: ["-c", script, "sh", argument].map(str::to_owned).to_vec(),
        environment: BTreeMap::from([("GIVEN".to_owned(), "yes".to_owned())]),
        stdin: Some(b"from stdin".to_vec()),
        confinement: Confinement { memory_bytes: 256 << 20, cpu_seconds: 5, ..Confinement::default() },
        max_output: 10_000,
    }
}

async fn run(invocation: Invocation) -> Result<Finished, SandboxError> {
    let sandbox = Sandbox::new(std::env::current_exe().unwrap());
    tokio::time::timeout(Duration::from_secs(60), sandbox.run(invocation)).await.expect("it ends")
}

async fn said(script: &str, argument: &str) -> String {
    let finished = run(sh(script, argument)).await.unwrap();
    assert_eq!(finished.code, Some(0), "{script}: {finished:?}");
    String::from_utf8(finished.stdout).unwrap()
}

async fn given_a_program_when_it_runs_then_it_gets_its_words_its_input_and_nothing_of_ours() {
    assert_eq!(said("printf %s \"$1\"", "$(id); `id` | \"x\"\n").await, "$(id); `id` | \"x\"\n");
    assert_eq!(said("cat", "").await, "from stdin");
    let environment = said("env | cut -d= -f1 | sort | tr '\\n' ' '", "").await;
    for name in environment.split_whitespace() {
        assert!(
            ["GIVEN", "HOME", "LANG", "PATH", "PWD", "TMPDIR", "OLDPWD", "SHLVL", "_"].contains(&name),
            "{name} is not for it: {environment}"
        );
    }
    let folder = said("pwd; touch own && ls", "").await;
    let (folder, listed) = folder.split_once('\n').unwrap();
    assert_eq!(listed, "own\n", "an empty folder of its own");
    assert!(!Path::new(folder).exists(), "the folder goes with the call");
    let finished = run(sh("echo no >&2; exit 7", "")).await.unwrap();
    assert_eq!((finished.code, finished.stderr.as_str()), (Some(7), "no"));
}

async fn given_a_program_that_does_not_start_when_it_is_run_then_the_error_says_why() {
    let error = run(Invocation { program: "/no/such".into(), ..sh("", "") }).await.unwrap_err().to_string();
    assert!(error.contains("/no/such can't be started") && error.contains("No such file"), "{error}");
}

async fn given_limits_when_a_program_goes_past_them_then_it_ends() {
    let error = run(sh("while :; do echo 0123456789; done", "")).await.unwrap_err();
    assert!(matches!(error, SandboxError::TooMuchOutput { limit: 10_000, .. }), "{error}");
    let spin = Invocation {
        confinement: Confinement { cpu_seconds: 1, ..Confinement::default() },
        ..sh("while :; do :; done", "")
    };
    let finished = run(spin).await.unwrap();
    assert!(finished.signal.is_some(), "processor time: {finished:?}");
    let file = Invocation {
        confinement: Confinement { file_bytes: 1 << 20, ..Confinement::default() },
        ..sh("head -c 4194304 /dev/zero > big; wc -c < big", "")
    };
    let finished = run(file).await.unwrap();
    let size: u64 = String::from_utf8(finished.stdout).unwrap().trim().parse().unwrap_or(0);
    assert!(size <= 1 << 20, "{size} bytes were written");
    for open_files in [256, 300] {
        let confinement = Confinement { open_files, ..Confinement::default() };
        let finished = run(Invocation { confinement, ..sh("ulimit -Hn", "") }).await.unwrap();
        assert_eq!(String::from_utf8(finished.stdout).unwrap().trim(), open_files.to_string());
    }
    let sorted = Invocation { stdin: None, ..sh("head -c 2000000000 /dev/zero | tail -c 1900000000 | wc -c", "") };
    let finished = run(sorted).await.unwrap();
    assert_ne!(finished.stdout, b"1900000000\n", "memory");
}

/// Whether a process has these words among its arguments.
fn lives(words: &str) -> bool {
    std::fs::read_dir("/proc").unwrap().flatten().any(|entry| {
        std::fs::read(entry.path().join("cmdline"))
            .is_ok_and(|line| String::from_utf8_lossy(&line).replace('\0', " ").contains(words))
    })
}

async fn wait_for(what: &str, holds: impl Fn() -> bool) {
    for _ in 0..500 {
        if holds() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("waited in vain for {what}");
}

async fn given_a_call_that_is_given_up_when_it_is_dropped_then_no_process_of_it_is_left() {
    let mark = format!("7{}", std::process::id());
    let words = format!("sleep {mark}");
    let call = tokio::spawn(run(sh("sleep \"$1\" & sleep \"$1\"", &mark)));
    wait_for("the program to start", || lives(&words)).await;
    call.abort();
    wait_for("its end", || !lives(&words)).await;
    // Nor when the program ends by itself and leaves something behind.
    assert_eq!(run(sh("sleep \"$1\" & exit 0", &mark)).await.unwrap().code, Some(0));
    wait_for("what it left behind", || !lives(&words)).await;
}

#[expect(clippy::print_stdout, reason = "which parts were tried depends on the kernel")]
async fn given_a_kernel_that_enforces_it_when_a_program_reaches_out_then_it_is_denied() {
    let support = sandbox::support();
    println!("{support}");
    let secret = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(secret.path(), "canary").unwrap();
    let path = secret.path().to_str().unwrap();
    if support.landlock {
        for script in
            ["cat \"$1\"", "echo x > \"$1\"", "rm \"$1\"", "cat /etc/shadow", "ls /root", "cat /proc/1/environ"]
        {
            let finished = run(sh(script, path)).await.unwrap();
            assert_ne!(finished.code, Some(0), "{script}: {finished:?}");
            assert!(!String::from_utf8_lossy(&finished.stdout).contains("canary"), "{script}");
        }
        assert_eq!(std::fs::read_to_string(path).unwrap(), "canary");
        let opened = Invocation {
            confinement: Confinement { read: vec![PathBuf::from(path)], ..Confinement::default() },
            ..sh("cat \"$1\"", path)
        };
        assert_eq!(run(opened).await.unwrap().stdout, b"canary");
    }
    if support.seccomp && Path::new("/usr/bin/python3").exists() {
        let python = |script: &str, network: bool| Invocation {
            program: "/usr/bin/python3".into(),
            arguments: vec!["-c".into(), script.into()],
            confinement: Confinement { network, ..Confinement::default() },
            ..sh("", "")
        };
        for script in ["import socket; socket.socket()", "import os; os.setsid()", "import os; os.setpgid(0, 0)"] {
            let finished = run(python(script, false)).await.unwrap();
            assert!(finished.stderr.contains("not permitted"), "{script}: {finished:?}");
        }
        assert_eq!(run(python("import socket; socket.socket()", true)).await.unwrap().code, Some(0));
    }
}
