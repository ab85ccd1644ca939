//! Instants as the outside sees them.

use std::fmt;

use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use super::Invalid;

/// An instant in whole milliseconds since 1970, UTC. Which clock it was read from is said where it
/// is stored: Redis' for the sale's window, the database's for holds and orders.
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

/// Characters of the text, as `2026-11-30T20:00:00.000Z`.
const TEXT_LENGTH: usize = 24;

impl Timestamp {
    /// The text. Written by hand: every order carries three times, and a general formatter took an
    /// eighth of the time of a whole request.
    fn text(self) -> [u8; TEXT_LENGTH] {
        const DAY_MS: i64 = 86_400_000;
        let (year, month, day) = date(self.0 / DAY_MS);
        let ms = self.0 % DAY_MS;
        let mut text = *b"0000-00-00T00:00:00.000Z";
        digits(&mut text[0..4], year);
        digits(&mut text[5..7], month);
        digits(&mut text[8..10], day);
        digits(&mut text[11..13], ms / 3_600_000);
        digits(&mut text[14..16], ms / 60_000 % 60);
        digits(&mut text[17..19], ms / 1_000 % 60);
        digits(&mut text[20..23], ms % 1_000);
        text
    }
}

/// Year, month and day of a day since 1970. Counts in years that begin in March, so that the leap
/// day is a year's last; 400 of them have always the same number of days.
const fn date(days_since_1970: i64) -> (i64, i64, i64) {
    const DAYS_BEFORE_1970: i64 = 719_468; // since 1 March of the year 0
    const DAYS_OF_400_YEARS: i64 = 146_097;
    let days = days_since_1970 + DAYS_BEFORE_1970;
    let (era, day_of_era) = (days / DAYS_OF_400_YEARS, days % DAYS_OF_400_YEARS);
    let leap_days = day_of_era / 1_460 - day_of_era / 36_524 + day_of_era / 146_096;
    let year_of_era = (day_of_era - leap_days) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let months_since_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * months_since_march + 2) / 5 + 1;
    let year = 400 * era + year_of_era;
    if months_since_march < 10 {
        (year, months_since_march + 3, day)
    } else {
        (year + 1, months_since_march - 9, day)
    }
}

/// Fills the whole slice with the number's last digits.
fn digits(text: &mut [u8], mut number: i64) {
    for digit in text.iter_mut().rev() {
        *digit = b'0' + (number % 10) as u8;
        number /= 10;
    }
}

fn as_str(text: &[u8; TEXT_LENGTH]) -> &str {
    std::str::from_utf8(text).expect("digits and signs are ASCII")
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(as_str(&self.text()))
    }
}

impl serde::Serialize for Timestamp {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(as_str(&self.text()))
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
    fn every_day_of_the_calendar_is_written_as_the_library_reads_it() {
        let last = MILLIS_MAX / 86_400_000;
        for day in 0..=last {
            // Another time of each day, the last millisecond of some.
            let millis = day * 86_400_000 + (day * 7_919_003 + 86_399_999) % 86_400_000;
            let instant = Timestamp(millis);
            assert_eq!(Timestamp::parse(&instant.to_string()), Ok(instant));
        }
        let last = Timestamp(MILLIS_MAX).to_string();
        assert_eq!(last, "9999-12-31T23:59:59.999Z");
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
