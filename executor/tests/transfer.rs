//! Lists, uploads and downloads over HTTP (`docs/specs/executor.md`, sections 2.4 to 2.6), and
//! attacks.

mod archives;
mod common;
mod downloads;
mod lists;
mod uploads;

use std::io::{Cursor, Write as _};

use serde_json::json;
use zip::ZipWriter;
use zip::write::SimpleFileOptions;

fn detail(text: &str) -> String {
    json!({"detail": text}).to_string()
}

/// Fields of a row, which are separated by ` | `.
pub(crate) fn fields<const COUNT: usize>(row: &str) -> [&str; COUNT] {
    let fields: Vec<_> = row.split(" | ").collect();
    let wrong = |fields| panic!("{row} has other fields: {fields:?}");
    fields.try_into().unwrap_or_else(wrong)
}

fn archive(entries: &[(&str, u32, &[u8])]) -> Vec<u8> {
    let mut writer = ZipWriter::new(Cursor::new(Vec::new()));
    for (name, mode, content) in entries {
        let options = SimpleFileOptions::default().unix_permissions(*mode);
        if name.ends_with('/') {
            writer.add_directory(*name, options).unwrap();
        } else {
            writer.start_file(*name, options).unwrap();
            writer.write_all(content).unwrap();
        }
    }
    writer.finish().unwrap().into_inner()
}
