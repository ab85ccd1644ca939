//! A small picture of a sale's segments: what each was filled with, borrowed, lent and sold.

use std::fmt;

use crate::api::Segment;

/// Cells of the longest bar.
const WIDTH: u64 = 40;

/// The segments of a sale, to be printed.
#[derive(Debug)]
pub struct Picture<'a>(pub &'a [Segment]);

impl fmt::Display for Picture<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            formatter,
            "  {:<7}  {:<40}  {:>6} {:>8} {:>6} {:>6} {:>6}",
            "segment",
            "█ sold  ▒ sold, borrowed  · left",
            "filled",
            "borrowed",
            "lent",
            "sold",
            "left"
        )?;
        let longest = self.0.iter().map(held).max().unwrap_or(0).max(1);
        for one in self.0 {
            writeln!(
                formatter,
                "  {:>7}  {:<40}  {:>6} {:>8} {:>6} {:>6} {:>6}",
                one.segment,
                bar(one, longest),
                one.filled,
                signed('+', one.borrowed),
                signed('-', one.lent),
                sold(one),
                one.available
            )?;
        }
        Ok(())
    }
}

/// Units that it ever had and did not lend away.
const fn held(one: &Segment) -> u64 {
    (one.filled + one.borrowed).saturating_sub(one.lent)
}

/// Units that went to buyers and have not come back.
const fn sold(one: &Segment) -> u64 {
    held(one).saturating_sub(one.available)
}

fn bar(one: &Segment, longest: u64) -> String {
    let cells = |units: u64| usize::try_from((units * WIDTH).div_ceil(longest)).unwrap_or(0);
    let borrowed = one.borrowed.min(sold(one));
    let own = "█".repeat(cells(sold(one)) - cells(borrowed).min(cells(sold(one))));
    let bar = own + &"▒".repeat(cells(borrowed)) + &"·".repeat(cells(one.available));
    bar.chars().take(WIDTH as usize).collect()
}

fn signed(sign: char, units: u64) -> String {
    if units == 0 {
        "0".to_owned()
    } else {
        format!("{sign}{units}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_segment_that_was_filled_with_four_borrowed_one_and_sold_five_is_drawn_so() {
        let rich = Segment {
            segment: 0,
            filled: 4,
            borrowed: 1,
            lent: 0,
            available: 0,
        };
        let poor = Segment {
            segment: 1,
            filled: 4,
            borrowed: 0,
            lent: 1,
            available: 1,
        };
        let picture = Picture(&[rich, poor]).to_string();
        let lines: Vec<&str> = picture.lines().collect();
        let full = "█".repeat(32) + &"▒".repeat(8);
        assert!(lines[1].contains(&full), "{picture}");
        assert!(
            lines[1].ends_with("4       +1      0      5      0"),
            "{picture}"
        );
        let part = "█".repeat(16) + &"·".repeat(8);
        assert!(lines[2].contains(&part), "{picture}");
        assert!(
            lines[2].ends_with("4        0     -1      2      1"),
            "{picture}"
        );
    }
}
