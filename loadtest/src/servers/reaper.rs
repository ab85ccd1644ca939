//! The reaper: ends what a process leaves behind when it dies without running its destructors.
//!
//! A destructor does not run after SIGKILL, after `process::exit`, nor for a `static`. So one
//! small shell process, started with the first server, reads from a pipe which processes and
//! directories are ours. The kernel closes the pipe when we die, however we die; then the shell
//! ends those processes and removes those directories. It outlives a Ctrl-C since it is in a
//! process group of its own.
//!
//! A process id is struck off as soon as its process has been waited for, so the reaper never
//! signals a stranger that was given the same number.

use std::io::Write as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{ChildStdin, Command, Stdio};
use std::sync::{LazyLock, Mutex};

use anyhow::{Context as _, Result, ensure};
use nix::sys::signal::Signal;

const SCRIPT: &str = r#"
trap '' HUP INT QUIT TERM
processes=
set --
while IFS= read -r line; do
    rest=${line#* }
    case $line in
    'process '*) processes="$processes $rest" ;;
    'waited '*)
        left=
        for process in $processes; do
            [ "${process#*:}" = "$rest" ] || left="$left $process"
        done
        processes=$left
        ;;
    'directory '*) set -- "$@" "$rest" ;;
    esac
done
for process in $processes; do
    kill -s "${process%%:*}" "${process#*:}"
    kill -s CONT "${process#*:}"
done
for process in $processes; do
    patience=100
    while kill -s 0 "${process#*:}" && [ $patience -gt 0 ]; do
        sleep 0.1
        patience=$((patience - 1))
    done
    kill -s KILL "${process#*:}"
done
rm -rf -- "$@"
"#;

static REAPER: LazyLock<Result<Mutex<ChildStdin>>> = LazyLock::new(start);

fn start() -> Result<Mutex<ChildStdin>> {
    let mut child = Command::new("/bin/sh")
        .args(["-c", SCRIPT, "reaper"])
        .process_group(0)
        .current_dir("/")
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .context("cannot start sh, which would clean up after this process")?;
    Ok(Mutex::new(
        child
            .stdin
            .take()
            .expect("standard input was asked to be piped"),
    ))
}

/// From now on `pid`, a child of this process, is ended by `farewell` should this process die.
pub(super) fn watch_process(pid: u32, farewell: Signal) -> Result<()> {
    let signal = farewell.as_str().trim_start_matches("SIG");
    tell(&format!("process {signal}:{pid}\n"))
}

/// `pid` has been waited for: its number may soon belong to another process.
pub(super) fn forget_process(pid: u32) -> Result<()> {
    tell(&format!("waited {pid}\n"))
}

/// From now on `directory` is removed should this process die. One that is gone by then is fine.
pub(super) fn watch_directory(directory: &Path) -> Result<()> {
    let name = directory
        .to_str()
        .context("a temporary directory's name is not UTF-8")?;
    ensure!(
        !name.contains('\n'),
        "a temporary directory's name contains a line break"
    );
    tell(&format!("directory {name}\n"))
}

fn tell(line: &str) -> Result<()> {
    let pipe = REAPER
        .as_ref()
        .map_err(|error| anyhow::anyhow!("{error:#}"))?;
    let mut pipe = pipe.lock().expect("no holder panics");
    pipe.write_all(line.as_bytes())
        .context("the reaper is gone")
}
