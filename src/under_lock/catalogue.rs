//! `stockade locks`: the catalogue, as text.

use clap::{Args, ValueEnum};

use crate::lock::{Fencing, Kind};

/// A language of the catalogue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Language {
    /// English.
    En,
    /// 中文.
    Zh,
}

/// What `stockade locks` is told.
#[derive(Debug, Clone, Args)]
pub struct CatalogueConfig {
    /// Language of the sentences.
    #[arg(long, value_enum, default_value_t = Language::En)]
    pub language: Language,
}

/// The catalogue of locks, as text.
#[must_use]
pub fn catalogue(config: &CatalogueConfig) -> String {
    let english = config.language == Language::En;
    let mut text = String::new();
    for kind in Kind::ALL {
        let entry = kind.entry();
        let (promise, breaks) = match english {
            true => (entry.promise.en, entry.breaks.en),
            false => (entry.promise.zh, entry.breaks.zh),
        };
        let (promises, broken_by) = match english {
            true => ("promises", "broken by"),
            false => ("承诺", "弱点"),
        };
        let naive = match (entry.naive, english) {
            (true, true) => " (naive on purpose)",
            (true, false) => "（故意写错的示例）",
            (false, _) => "",
        };
        text += &format!("{kind}{naive}\n");
        text += &format!("  {promises}: {promise}\n  {broken_by}: {breaks}\n");
        text += &format!("  {}\n  {}\n\n", abilities(*kind), entry.source);
    }
    text
}

fn abilities(kind: Kind) -> String {
    let can = kind.capabilities();
    let fenced = match can.fencing {
        Fencing::None => "",
        Fencing::WhileDataLives => "fenced while the data lives",
        Fencing::Durable => "fenced for good",
    };
    let all = [
        (can.reentrant, "reentrant"),
        (can.fair, "fair"),
        (can.shared, "shared"),
        (!fenced.is_empty(), fenced),
        (can.extends, "prolongs"),
        (can.recovers, "lease"),
        (can.survives_pause, "survives a pause"),
    ];
    let all: Vec<&str> = all.iter().filter(|one| one.0).map(|one| one.1).collect();
    format!("[{}]", all.join(", "))
}
