//! Where the servers' programs are.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};

/// The first `name` in `PATH`.
pub(super) fn in_path(name: &str) -> Option<PathBuf> {
    let directories = env::var_os("PATH")?;
    env::split_paths(&directories)
        .map(|directory| directory.join(name))
        .find(|path| path.is_file())
}

/// The path of `redis-server`.
///
/// # Errors
/// Says in one line what to install.
pub(super) fn redis_server() -> Result<PathBuf> {
    in_path("redis-server").context(
        "redis-server is not in PATH; install it with `apt-get install redis-server` (Debian, \
         Ubuntu), `dnf install redis` (Fedora) or `brew install redis` (macOS)",
    )
}

/// The path of `redis-check-aof`, which comes with `redis-server`.
///
/// # Errors
/// Says in one line what is missing.
pub(super) fn redis_check_aof() -> Result<PathBuf> {
    in_path("redis-check-aof").context("redis-check-aof is not in PATH; it comes with redis-server")
}

/// The path of a program of MariaDB's.
///
/// # Errors
/// Says in one line what to install.
pub(super) fn mariadb(program: &str) -> Result<PathBuf> {
    let administrators = Path::new("/usr/sbin").join(program);
    let found = in_path(program).or_else(|| administrators.is_file().then_some(administrators));
    found.with_context(|| {
        format!(
            "{program} is not in PATH; install it with `apt-get install mariadb-server` (Debian, \
             Ubuntu) or `brew install mariadb` (macOS)"
        )
    })
}

/// The path of `etcd`.
///
/// # Errors
/// Says in one line what to install.
pub(super) fn etcd() -> Result<PathBuf> {
    in_path("etcd").context("etcd is not in PATH; install it with `apt-get install etcd-server`")
}

/// What scripts/install has put beside what is built: `venv/bin/…` of Python's, `node/node_modules` of Node's.
///
/// # Errors
/// Says in one line what to run.
pub fn neighbour(path: &str) -> Result<PathBuf> {
    let target = match env::var_os("CARGO_TARGET_DIR") {
        Some(target) => PathBuf::from(target),
        None => Path::new(env!("CARGO_MANIFEST_DIR")).join("../target"),
    };
    let found = target.join("neighbours").join(path);
    match found.exists() {
        true => Ok(found),
        false => bail!("{} is missing; run `scripts/install test`", found.display()),
    }
}

/// The path of `java`.
///
/// # Errors
/// Says in one line what to install.
pub(super) fn java() -> Result<PathBuf> {
    in_path("java").context(
        "java is not in PATH; install it with `apt-get install default-jdk-headless` (Debian, Ubuntu)",
    )
}

/// ZooKeeper's archive, which names all others that it needs.
///
/// # Errors
/// Says in one line what to install.
pub(super) fn zookeeper_jar() -> Result<PathBuf> {
    let jar = PathBuf::from("/usr/share/java/zookeeper.jar");
    let found = jar.is_file().then_some(jar);
    found.context(
        "there is no /usr/share/java/zookeeper.jar; install it with `apt-get install zookeeper` \
         (Debian, Ubuntu)",
    )
}

/// The directory that holds `initdb`, `postgres` and `psql`.
///
/// Debian keeps them out of `PATH`, one directory for each version; the newest wins. A link in
/// `PATH` is followed, since its neighbours need not be linked too.
///
/// # Errors
/// Says in one line what to install.
pub(super) fn postgres_directory() -> Result<PathBuf> {
    let linked = in_path("initdb").and_then(|path| fs::canonicalize(path).ok());
    let found = linked.and_then(|path| path.parent().map(Path::to_path_buf));
    found.or_else(newest_debian_directory).context(
        "PostgreSQL's initdb is neither in PATH nor in /usr/lib/postgresql/*/bin; install it with \
         `apt-get install postgresql` (Debian, Ubuntu) or `brew install postgresql` (macOS)",
    )
}

fn newest_debian_directory() -> Option<PathBuf> {
    let versions = fs::read_dir("/usr/lib/postgresql").ok()?;
    let number = |path: &PathBuf| path.file_name()?.to_str()?.parse::<u32>().ok();
    versions
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.join("bin/initdb").is_file())
        .max_by_key(number)
        .map(|path| path.join("bin"))
}
