//! CPU time of the processes that a purchase passes through: the only figure that survives a change of
//! machine.

use std::fmt;
use std::fs;

use anyhow::{Context as _, Result};
use nix::unistd::{SysconfVar, sysconf};

/// CPU seconds of service, Redis and database (0 if the database is a file).
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Cpu {
    seconds: [f64; 3],
}

impl Cpu {
    /// What they have used since their start.
    pub(super) fn read(service: u32, redis: u32, database: Option<u32>) -> Result<Self> {
        let database = match database {
            Some(pid) => family(pid)?,
            None => 0.0,
        };
        Ok(Self {
            seconds: [of(service)?, of(redis)?, database],
        })
    }

    pub(super) fn since(&self, before: &Self) -> Self {
        let mut seconds = self.seconds;
        for (after, before) in seconds.iter_mut().zip(before.seconds) {
            *after -= before;
        }
        Self { seconds }
    }

    pub(super) fn per_thousand(&self, purchases: f64) -> Self {
        Self {
            seconds: self.seconds.map(|seconds| seconds * 1_000.0 / purchases),
        }
    }

    pub(super) fn median(runs: &[Self]) -> Self {
        let mut seconds = [0.0; 3];
        for (part, median) in seconds.iter_mut().enumerate() {
            let mut values: Vec<f64> = runs.iter().map(|run| run.seconds[part]).collect();
            *median = super::median(&mut values);
        }
        Self { seconds }
    }
}

impl fmt::Display for Cpu {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [service, redis, database] = self.seconds.map(|seconds| seconds * 1_000.0);
        write!(formatter, "service {service:.1} ms, Redis {redis:.1} ms")?;
        if database > 0.0 {
            write!(formatter, ", database {database:.1} ms")?;
        }
        Ok(())
    }
}

/// User and system time of a process.
fn of(pid: u32) -> Result<f64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let fields = fields(&stat).context("/proc/PID/stat has another shape")?;
    Ok(seconds(fields.own))
}

/// The same of a process, its children, and those of its children that have ended.
fn family(pid: u32) -> Result<f64> {
    let mut ticks = 0;
    for entry in fs::read_dir("/proc")? {
        let path = entry?.path().join("stat");
        // Not a process, or one that has just ended.
        let Ok(stat) = fs::read_to_string(path) else {
            continue;
        };
        let Some(fields) = fields(&stat) else {
            continue;
        };
        if fields.pid == pid {
            ticks += fields.own + fields.ended_children;
        } else if fields.parent == pid {
            ticks += fields.own;
        }
    }
    Ok(seconds(ticks))
}

struct Fields {
    pid: u32,
    parent: u32,
    own: u64,
    ended_children: u64,
}

/// See proc(5): the name in parentheses may hold anything, so fields are counted behind it.
fn fields(stat: &str) -> Option<Fields> {
    let (before, after) = (stat.split_once(" (")?.0, stat.rsplit_once(") ")?.1);
    let values: Vec<&str> = after.split_whitespace().collect();
    let number = |index: usize| values.get(index)?.parse::<u64>().ok();
    Some(Fields {
        pid: before.parse().ok()?,
        parent: number(1)?.try_into().ok()?,
        own: number(11)? + number(12)?,
        ended_children: number(13)? + number(14)?,
    })
}

fn seconds(ticks: u64) -> f64 {
    let per_second = sysconf(SysconfVar::CLK_TCK).ok().flatten().unwrap_or(100);
    ticks as f64 / per_second as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stat_line_is_read_whatever_the_program_is_called() {
        let stat = "42 (a ) b) S 7 42 42 0 -1 4194560 1 2 3 4 150 50 30 20 20 0 1 0 5 6 7";
        let fields = fields(stat).unwrap();
        assert_eq!((fields.pid, fields.parent), (42, 7));
        assert_eq!((fields.own, fields.ended_children), (200, 50));
    }

    #[test]
    fn our_own_time_grows() {
        let pid = std::process::id();
        let before = Cpu::read(pid, pid, Some(pid)).unwrap();
        let mut sum = 0_u64;
        while Cpu::read(pid, pid, None).unwrap().since(&before).seconds[0] < 0.02 {
            sum = std::hint::black_box(sum.wrapping_add(1));
        }
        assert!(Cpu::read(pid, pid, Some(pid)).unwrap().seconds[2] > before.seconds[2]);
    }
}
