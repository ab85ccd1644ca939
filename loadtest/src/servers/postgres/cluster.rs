//! What a PostgreSQL server stands on: a fresh cluster, a directory and an account.

use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail, ensure};
use nix::unistd::{Uid, User};
use tempfile::TempDir;
use tokio::sync::OnceCell;

use super::SUPERUSER;
use crate::servers::directory;

/// The cluster that `initdb` made; each server starts on a copy of it.
static PRISTINE: OnceCell<PathBuf> = OnceCell::const_new();

/// Copies a fresh cluster to `data`, a path in a [`private_directory`].
pub(super) async fn create(programs: &Path, data: &Path) -> Result<()> {
    let pristine = PRISTINE
        .get_or_try_init(async || initialise(programs).await)
        .await?;
    execute(
        Command::new("cp")
            .arg("-a")
            .args([pristine.as_path(), data]),
    )
    .await
    .map(drop)
}

async fn initialise(programs: &Path) -> Result<PathBuf> {
    // Kept for as long as the process lives; then the reaper removes it.
    let directory = private_directory()?.keep();
    let data = directory.join("data");
    let mut command = unprivileged(&programs.join("initdb"), &directory)?;
    command.args([
        "--username",
        SUPERUSER,
        "--auth",
        "trust",
        "--encoding",
        "UTF8",
    ]);
    command
        .args(["--locale", "C", "--no-sync", "--pgdata"])
        .arg(&data);
    execute(&mut command).await?;
    Ok(data)
}

/// A temporary directory that belongs to the account the server runs as.
pub(super) fn private_directory() -> Result<TempDir> {
    let directory = directory("stockade-postgres-")?;
    if let Some(account) = account()? {
        chown(
            directory.path(),
            Some(account.uid.as_raw()),
            Some(account.gid.as_raw()),
        )?;
    }
    Ok(directory)
}

/// A command that runs as the account the server runs as.
pub(super) fn unprivileged(program: &Path, directory: &Path) -> Result<Command> {
    let mut command = Command::new(program);
    // Where we stand now, that account may not be allowed to look.
    command.current_dir(directory);
    if let Some(account) = account()? {
        command.uid(account.uid.as_raw()).gid(account.gid.as_raw());
    }
    Ok(command)
}

/// The account to run as, if it may not be our own.
fn account() -> Result<Option<User>> {
    if !Uid::effective().is_root() {
        return Ok(None);
    }
    for name in ["postgres", "nobody"] {
        if let Some(user) = User::from_name(name)? {
            return Ok(Some(user));
        }
    }
    bail!("PostgreSQL does not run as root, and there is no user postgres or nobody")
}

/// Runs a command to its end and gives what it printed.
pub(super) async fn execute(command: &mut Command) -> Result<String> {
    let program = command.get_program().to_owned();
    let mut command = tokio::process::Command::from(std::mem::replace(command, Command::new("")));
    let output = command.kill_on_drop(true).output().await;
    let output = output.with_context(|| format!("cannot run {}", program.display()))?;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(
        output.status.success(),
        "{} failed: {errors}",
        program.display()
    );
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
