//! Who is before whom: the names of the nodes under one lock.
//!
//! A name is something unique, a mark that says what its owner wants, and the number that the server gave it. The
//! marks are Curator's (`InterProcessMutex`, `InterProcessReadWriteLock`) and kazoo's (`Lock`, `ReadLock`), so that
//! all of them stand in one queue.

use crate::lock::Mode;

/// Wants it alone, shares it with nobody.
pub(super) const MUTEX: &str = "-lock-";
/// Wants to read.
pub(super) const READ: &str = "-__READ__";
/// Wants to write.
pub(super) const WRITE: &str = "-__WRIT__";

const MARKS: [(&str, Mode); 5] = [
    ("lock-", Mode::Exclusive),
    ("__WRIT__", Mode::Exclusive),
    ("__READ__", Mode::Shared),
    ("__lock__", Mode::Exclusive),
    ("__rlock__", Mode::Shared),
];

/// A node's number and what its owner wants; None: it stands in no queue.
fn place(name: &str) -> Option<(i32, Mode)> {
    MARKS.iter().find_map(|(mark, mode)| {
        let (_, number) = name.rsplit_once(mark)?;
        Some((number.parse().ok()?, *mode))
    })
}

/// Whether `one` was numbered before `other`. The server's number wraps around after 2^31 nodes; those that are
/// there together are never so far apart.
const fn is_before(one: i32, other: i32) -> bool {
    other.wrapping_sub(one) > 0
}

/// The node for which `own` has to wait: the last one before it that is in its way.
pub(super) fn predecessor<'a>(own: &str, names: &'a [String], mode: Mode) -> Option<&'a str> {
    let (number, _) = place(own)?;
    let mut last: Option<(i32, &str)> = None;
    for name in names {
        let Some((theirs, wants)) = place(name) else {
            continue;
        };
        let together = mode == Mode::Shared && wants == Mode::Shared;
        let nearer = last.is_none_or(|(so_far, _)| is_before(so_far, theirs));
        if !together && nearer && is_before(theirs, number) {
            last = Some((theirs, name));
        }
    }
    last.map(|(_, name)| name)
}

/// The first of all, and its number as it is written; None if nobody is there or the first one reads.
pub(super) fn first_writer(names: &[String]) -> Option<(&str, &str)> {
    let mut first: Option<(i32, Mode, &str)> = None;
    for name in names {
        let Some((number, mode)) = place(name) else {
            continue;
        };
        if first.is_none_or(|(so_far, ..)| is_before(number, so_far)) {
            first = Some((number, mode, name));
        }
    }
    let (_, mode, name) = first?;
    let (_, written) = MARKS.iter().find_map(|(mark, _)| name.rsplit_once(mark))?;
    (mode == Mode::Exclusive).then_some((name, written))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn a_contender_waits_for_the_nearest_before_it_whatever_the_unique_part_says() {
        let all = names(&[
            "_c_ff-lock-0000000001",
            "_c_00-lock-0000000003",
            "_c_aa-lock-0000000002",
            "something-else",
        ]);
        let exclusive = |own| predecessor(own, &all, Mode::Exclusive);
        assert_eq!(exclusive("_c_ff-lock-0000000001"), None);
        assert_eq!(
            exclusive("_c_aa-lock-0000000002"),
            Some("_c_ff-lock-0000000001")
        );
        assert_eq!(
            exclusive("_c_00-lock-0000000003"),
            Some("_c_aa-lock-0000000002")
        );
    }

    #[test]
    fn a_reader_waits_for_the_last_writer_and_a_writer_for_everybody() {
        let all = names(&[
            "a-__WRIT__0000000001",
            "b-__READ__0000000002",
            "c-__READ__0000000003",
            "d-__WRIT__0000000004",
        ]);
        let reader = predecessor("c-__READ__0000000003", &all, Mode::Shared);
        assert_eq!(reader, Some("a-__WRIT__0000000001"));
        let writer = predecessor("d-__WRIT__0000000004", &all, Mode::Exclusive);
        assert_eq!(writer, Some("c-__READ__0000000003"));
    }

    #[test]
    fn neighbours_of_other_libraries_stand_in_the_same_queue() {
        let all = names(&["0123__lock__0000000007", "_c_9-lock-0000000008"]);
        let own = predecessor("_c_9-lock-0000000008", &all, Mode::Exclusive);
        assert_eq!(own, Some("0123__lock__0000000007"));
    }

    #[test]
    fn the_first_writer_has_nobody_before_it() {
        let all = names(&["b-__READ__0000000002", "a-__WRIT__0000000001"]);
        assert_eq!(
            first_writer(&all),
            Some(("a-__WRIT__0000000001", "0000000001"))
        );
        assert_eq!(first_writer(&all[..1]), None);
        assert_eq!(first_writer(&[]), None);
        let wrapped = names(&["_c_1-lock--2147483648"]);
        assert_eq!(first_writer(&wrapped).map(|it| it.1), Some("-2147483648"));
    }

    #[test]
    fn the_number_may_wrap_around() {
        let all = names(&["a-lock-2147483647", "b-lock--2147483648"]);
        let second = predecessor("b-lock--2147483648", &all, Mode::Exclusive);
        assert_eq!(second, Some("a-lock-2147483647"));
        assert_eq!(
            predecessor("a-lock-2147483647", &all, Mode::Exclusive),
            None
        );
    }
}
