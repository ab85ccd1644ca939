//! The list of reports names tests; a test that is renamed or removed must be renamed there too.

use std::collections::BTreeSet;
use std::path::Path;

const ROOT: &str = env!("CARGO_MANIFEST_DIR");
/// What a report is to have that can concern these locks.
const TESTED_AT_LEAST: usize = 40;

/// Names such as `theme::a_sentence` or `server::theme::a_sentence`, between backquotes.
fn named(text: &str) -> BTreeSet<(&str, &str)> {
    let quoted = text.split('`').skip(1).step_by(2);
    quoted.filter_map(|words| words.rsplit_once("::")).collect()
}

#[test]
fn each_test_that_the_list_of_reports_names_is_there() {
    let list = Path::new(ROOT).join("docs/lock-reports.md");
    let list = std::fs::read_to_string(list).unwrap();
    for (theme, name) in named(&list) {
        let file = theme.replace("::", "/");
        let places = [
            format!("tests/it/locks/{file}.rs"),
            format!("tests/it/locks/{file}/mod.rs"),
            format!("src/lock/conformance/{file}.rs"),
        ];
        let text: String = places
            .iter()
            .filter_map(|place| std::fs::read_to_string(Path::new(ROOT).join(place)).ok())
            .collect();
        let function = format!("fn {name}(");
        assert!(text.contains(&function), "{theme}::{name} is not there");
    }
    let rows = list.lines().filter(|line| line.starts_with("| ["));
    let reports: BTreeSet<&str> = rows
        .filter(|row| !named(row).is_empty())
        .flat_map(|row| row.split("](").skip(1))
        .filter_map(|rest| rest.split(')').next())
        .filter(|link| link.starts_with("https://"))
        .collect();
    let tested = reports.len();
    assert!(tested >= TESTED_AT_LEAST, "{tested} reports with a test");
}
