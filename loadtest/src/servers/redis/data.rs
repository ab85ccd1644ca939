//! What a private Redis has on disk: copied at any moment, put back later, or cut short.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result, ensure};
use tempfile::TempDir;

use super::RedisServer;
use crate::servers::{directory, programs};

/// Where Redis keeps its append-only files, in its data directory.
const APPEND_DIRECTORY: &str = "appendonlydir";
/// The list of these files.
const MANIFEST: &str = "appendonly.aof.manifest";
/// What `redis-check-aof` says when it has cut.
const CUT: &str = "Successfully truncated AOF";

/// A server's append-only files, as they were at one moment.
#[derive(Debug)]
pub struct RedisCopy {
    directory: TempDir,
}

impl RedisServer {
    /// Copies its append-only files while it goes on, as a backup of its disk would. They only
    /// grow, so a copy is an older state; half a command at its end is left out when it is put
    /// back.
    ///
    /// # Errors
    /// When it was started without an append-only file.
    pub fn copy_data(&self) -> Result<RedisCopy> {
        let copy = directory("stockade-redis-copy-")?;
        copy_files(&self.append_directory(), copy.path())?;
        Ok(RedisCopy { directory: copy })
    }

    /// Puts a copy in the place of its data and starts it again, ending it by SIGKILL first if it
    /// runs.
    ///
    /// # Errors
    /// When it does not start again.
    pub async fn restart_from(&mut self, copy: &RedisCopy) -> Result<()> {
        if self.process.is_started() {
            self.kill9().await?;
        }
        let data = self.append_directory();
        fs::remove_dir_all(&data)?;
        fs::create_dir(&data)?;
        copy_files(copy.directory.path(), &data)?;
        self.restart().await
    }

    /// Cuts off what it wrote in at least the last `lost` before `crash`, as a power failure does
    /// with what no disk has seen: a SIGKILL alone loses nothing. Redis notes full seconds, so up
    /// to two more are lost. Returns how many bytes that was. Works on a killed server that was
    /// started with `--aof-timestamp-enabled yes`.
    ///
    /// # Errors
    /// When nothing was cut.
    pub async fn cut_data(&self, crash: SystemTime, lost: Duration) -> Result<u64> {
        ensure!(
            !self.process.is_started(),
            "a running redis-server would write on"
        );
        let before = self.data_bytes()?;
        let keep_until = (crash - lost).duration_since(UNIX_EPOCH)?.as_secs() - 1;
        let mut command = Command::new(programs::redis_check_aof()?);
        command.current_dir(self.append_directory()).args([
            "--truncate-to-timestamp",
            &keep_until.to_string(),
            MANIFEST,
        ]);
        let mut command = tokio::process::Command::from(command);
        let output = command.kill_on_drop(true).output().await;
        let output = output.context("cannot run redis-check-aof")?;
        let said = String::from_utf8_lossy(&output.stdout);
        ensure!(
            output.status.success() && said.contains(CUT),
            "redis-check-aof has not cut at {keep_until}: {said}"
        );
        let cut = before - self.data_bytes()?;
        ensure!(cut > 0, "nothing was written after {keep_until}: {said}");
        Ok(cut)
    }

    /// The size of its append-only files.
    ///
    /// # Errors
    /// When it was started without.
    pub fn data_bytes(&self) -> Result<u64> {
        let files = files(&self.append_directory())?;
        let sizes = files.iter().map(|file| Ok(fs::metadata(file)?.len()));
        sizes.sum()
    }

    fn append_directory(&self) -> PathBuf {
        self.directory.path().join(APPEND_DIRECTORY)
    }
}

fn files(directory: &Path) -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(directory)
        .with_context(|| format!("no append-only files in {}", directory.display()))?;
    entries.map(|entry| Ok(entry?.path())).collect()
}

fn copy_files(from: &Path, to: &Path) -> Result<()> {
    for file in files(from)? {
        let name = file.file_name().context("a file without a name")?;
        fs::copy(&file, to.join(name))?;
    }
    Ok(())
}
