//! What a call to Redis could not do, and whether it may have happened all the same.

use redis::{ErrorKind, RedisError, ServerErrorKind};

/// A call to Redis failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The script did not run: the server refused it before its start, or was never reached. The same
    /// call may be repeated as a first attempt.
    #[error("Redis did not run the call: {0}")]
    NotRun(RedisError),
    /// The call was sent and no answer came: it may have run, or may yet run.
    #[error("no answer from Redis: {0}")]
    Unknown(RedisError),
    /// No answer within the time allowed: it may have run, or may yet run.
    #[error("no answer from Redis in time")]
    TimedOut,
    /// An answer that the contract of the script does not have.
    #[error("an answer from Redis that cannot be: {0}")]
    Broken(String),
    /// Redis cannot be used at all as it is set up.
    #[error("{0}")]
    Unusable(String),
}

impl Error {
    /// Whether the script certainly did not run and will not run later.
    #[must_use]
    pub const fn is_not_run(&self) -> bool {
        matches!(self, Self::NotRun(_) | Self::Unusable(_))
    }
}

/// Codes with which the server refuses a script before its first command. Everything else that comes
/// back as an error, and everything that does not come back, leaves the outcome open.
const REFUSED_AT_THE_START: [&str; 11] = [
    "NOSCRIPT",
    "MOVED",
    "ASK",
    "TRYAGAIN",
    "CLUSTERDOWN",
    "LOADING",
    "READONLY",
    "MISCONF",
    "NOREPLICAS",
    "BUSY",
    "OOM",
];

impl From<RedisError> for Error {
    fn from(error: RedisError) -> Self {
        let refused = error
            .code()
            .is_some_and(|code| REFUSED_AT_THE_START.contains(&code))
            || matches!(
                error.kind(),
                ErrorKind::Server(ServerErrorKind::NoPerm | ServerErrorKind::CrossSlot)
            );
        // A refused connection comes from connecting, never from a command under way.
        if refused || error.is_connection_refusal() {
            Self::NotRun(error)
        } else {
            Self::Unknown(error)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn io(kind: std::io::ErrorKind) -> Error {
        RedisError::from(std::io::Error::from(kind)).into()
    }

    #[test]
    fn only_what_never_began_counts_as_not_run() {
        use std::io::ErrorKind as Io;
        assert!(io(Io::ConnectionRefused).is_not_run());
        for kind in [
            Io::BrokenPipe,
            Io::ConnectionReset,
            Io::UnexpectedEof,
            Io::TimedOut,
        ] {
            assert!(!io(kind).is_not_run(), "{kind:?}");
        }
        assert!(!Error::TimedOut.is_not_run());
    }
}
