//! Instants as the outside sees them.

use std::fmt;

use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use time::macros::format_description;

use super::Invalid;

/// An instant in whole milliseconds since 1970, UTC. Which clock it was read from is said where it is
/// stored: Redis' for the sale's window, the database's for holds and orders.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Timestamp(i64);

/// 9999-12-31T23:59:59.999Z: the last instant that RFC 3339 can write.
const MILLIS_MAX: i64 = 253_402_300_799_999;

impl Timestamp {
    /// Takes milliseconds since 1970.
    ///
    /// # Errors
    /// [`Invalid`] before 1970 or after 9999.
    pub fn from_millis(millis: i64) -> Result<Self, Invalid> {
        if (0..=MILLIS_MAX).contains(&millis) {
            Ok(Self(millis))
        } else {
            Err(Invalid::new("a time lies between 1970 and 9999"))
        }
    }

    /// Takes RFC 3339 text with any offset; finer digits than milliseconds are cut.
    ///
    /// # Errors
    /// [`Invalid`] when it is no such text or lies before 1970.
    pub fn parse(text: &str) -> Result<Self, Invalid> {
        let instant = OffsetDateTime::parse(text, &Rfc3339)
            .map_err(|_| Invalid::new("a time is RFC 3339 text, as 2026-11-30T20:00:00Z"))?;
        let millis = instant.unix_timestamp_nanos().div_euclid(1_000_000);
        Self::from_millis(i64::try_from(millis).unwrap_or(-1))
    }

    /// Milliseconds since 1970.
    #[must_use]
    pub const fn millis(self) -> i64 {
        self.0
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let layout = format_description!(
            "[year]-[month]-[day]T[hour]:[minute]:[second].[subsecond digits:3]Z"
        );
        let text = OffsetDateTime::from_unix_timestamp_nanos(i128::from(self.0) * 1_000_000)
            .ok()
            .and_then(|instant| instant.format(layout).ok())
            .ok_or(fmt::Error)?;
        f.write_str(&text)
    }
}

impl serde::Serialize for Timestamp {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> serde::Deserialize<'de> for Timestamp {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::parse(&text).map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_written_in_utc_with_milliseconds() {
        let instant = Timestamp::parse("2026-11-30T20:00:00.1239+08:00").unwrap();
        assert_eq!(instant.to_string(), "2026-11-30T12:00:00.123Z");
        assert_eq!(Timestamp::parse(&instant.to_string()), Ok(instant));
    }

    #[test]
    fn what_is_no_time_is_refused() {
        for text in [
            "",
            "2026-11-30",
            "2026-11-30T20:00:00",
            "1969-12-31T23:59:59Z",
            "now",
        ] {
            assert!(Timestamp::parse(text).is_err(), "{text}");
        }
        assert!(Timestamp::from_millis(MILLIS_MAX).is_ok());
        assert!(Timestamp::from_millis(MILLIS_MAX + 1).is_err());
    }
}
