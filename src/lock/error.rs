//! What can go wrong with a lock, beside that somebody else has it.

use super::Kind;

/// A lock could not be asked for.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Error {
    /// The server did not answer, or not in time. What it may have granted is given back or runs out.
    #[error("the server of the lock does not answer: {0}")]
    Unreachable(String),
    /// The server refuses what was asked.
    #[error("the server of the lock refuses: {0}")]
    Refused(String),
    /// This kind of lock cannot do that.
    #[error("a lock of kind {0} cannot {1}")]
    Unsupported(Kind, &'static str),
    /// The program is ending.
    #[error("the program is ending")]
    Stopped,
}

impl Error {
    /// Whether trying again cannot help; then nothing was granted either.
    pub(super) const fn is_final(&self) -> bool {
        matches!(
            self,
            Self::Refused(_) | Self::Unsupported(..) | Self::Stopped
        )
    }
}
