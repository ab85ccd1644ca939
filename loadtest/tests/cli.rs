//! The program's manners: exit codes, messages of one line, and nothing left behind.

#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use loadtest::servers::eventually;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tempfile::TempDir;

/// The program, with a temporary directory of its own in which it may leave nothing.
fn loadtest(temporary: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_loadtest"));
    command
        .args(args)
        .env("TMPDIR", temporary)
        .stdin(Stdio::null());
    command
}

fn assert_ends(output: &Output, code: i32, message: &str) {
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{errors}");
    assert!(errors.contains(message), "{errors}");
}

fn is_empty(directory: &Path) -> bool {
    fs::read_dir(directory).unwrap().next().is_none()
}

/// A program that stands in for the service.
fn stand_in(directory: &Path, script: &str) -> String {
    let path = directory.join("stand-in");
    fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    path.to_str().unwrap().to_owned()
}

#[test]
fn wrong_usage_and_help_have_their_exit_codes() {
    let directory = TempDir::new().unwrap();
    for args in [&["demo", "--buyers", "0"][..], &["demo", "--no-such"], &[]] {
        assert_ends(
            &loadtest(directory.path(), args).output().unwrap(),
            64,
            "help",
        );
    }
    assert_ends(
        &loadtest(directory.path(), &["demo", "--help"])
            .output()
            .unwrap(),
        0,
        "",
    );
}

#[test]
fn what_is_missing_is_named() {
    let directory = TempDir::new().unwrap();
    let args = ["demo", "--once", "--stockade-binary", "/no/such/program"];
    let output = loadtest(directory.path(), &args).output().unwrap();
    assert_ends(&output, 2, "cargo build --release");
    let args = ["demo", "--once", "--stockade-binary", "/bin/sh"];
    let output = loadtest(directory.path(), &args)
        .env("PATH", "/nowhere")
        .output()
        .unwrap();
    assert_ends(&output, 2, "apt-get install redis-server");
    assert!(is_empty(directory.path()));
}

#[test]
fn a_service_that_does_not_start_is_an_unknown_with_its_log() {
    let (programs, directory) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let program = stand_in(programs.path(), "echo no database; exit 3");
    let args = ["demo", "--once", "--stockade-binary", &program];
    assert_ends(
        &loadtest(directory.path(), &args).output().unwrap(),
        2,
        "no database",
    );
    assert!(is_empty(directory.path()));
}

#[tokio::test]
async fn a_signal_ends_everything_at_once() {
    let (programs, directory) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let flag = programs.path().join("started");
    let script = format!(
        "echo $$ > {0}.new; mv {0}.new {0}; exec sleep 600",
        flag.display()
    );
    let program = stand_in(programs.path(), &script);
    for signal in [Signal::SIGINT, Signal::SIGTERM] {
        let args = ["demo", "--stockade-binary", &program];
        let mut command = loadtest(directory.path(), &args);
        let child = command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let started = async || fs::read_to_string(&flag).ok();
        let service: i32 = eventually("the service", started)
            .await
            .unwrap()
            .trim()
            .parse()
            .unwrap();
        assert!(!is_empty(directory.path()));
        kill(Pid::from_raw(i32::try_from(child.id()).unwrap()), signal).unwrap();
        assert_ends(&child.wait_with_output().unwrap(), 2, "told to end");
        assert!(is_empty(directory.path()));
        assert!(
            kill(Pid::from_raw(service), None).is_err(),
            "the service still runs"
        );
        fs::remove_file(&flag).unwrap();
    }
}
