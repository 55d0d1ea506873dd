//! Coverage of the specification by cases. A case is a text in these tests that begins with the
//! number of its section; those of 2, 3, 4 and 6 run as root and as the sandbox user.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// Sections that are implemented.
const SECTIONS: &[&str] = &[
    "1.9", "1.10", "2.1", "2.2", "2.3", "2.4", "2.5", "2.6", "2.7", "2.8", "2.9", "3.1", "3.2",
    "3.3", "3.4", "4.1", "4.2", "4.3", "4.4", "4.5", "4.6", "4.7", "4.8", "4.9", "4.10", "4.11",
    "4.12", "4.13", "4.14", "4.15", "4.16", "5.2", "5.3", "5.4", "6.1", "6.2", "6.3", "6.4", "8.2",
    "8.3", "8.4", "8.5",
];
const AT_LEAST: usize = 250;

fn sources(directory: &Path, texts: &mut Vec<String>) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, texts);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            texts.push(fs::read_to_string(path).unwrap());
        }
    }
}

/// Returns `4.10` for `4.10 read -p`, and `6.1` for `6.1.2 missing`.
fn section(name: &str) -> Option<String> {
    let (number, title) = name.split_once(' ')?;
    let parts: Vec<_> = number.split('.').collect();
    let numbers = parts.iter().all(|part| part.parse::<u8>().is_ok());
    (numbers && parts.len() >= 2 && !title.is_empty()).then(|| parts[..2].join("."))
}

#[test]
fn every_section_has_its_cases() {
    let mut texts = Vec::new();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests");
    sources(&folder, &mut texts);
    let literals = texts.iter().flat_map(|text| text.split('"'));
    // Texts between two literals do not begin with a section number and a blank.
    let names: BTreeSet<&str> = literals.filter(|name| section(name).is_some()).collect();
    let mut counts = BTreeMap::new();
    for name in &names {
        *counts.entry(section(name).unwrap()).or_insert(0) += 1;
    }
    let count = |section: &&str| counts.get(*section).copied().unwrap_or(0);
    for section in SECTIONS {
        assert!(count(section) > 0, "{section}: {counts:?}");
    }
    let all: usize = SECTIONS.iter().map(count).sum();
    eprintln!("{all} cases: {counts:?}");
    assert!(all >= AT_LEAST, "{all} cases: {counts:?}");
}
