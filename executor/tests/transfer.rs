//! Lists, uploads and downloads over HTTP: spec 2.4 to 2.6, and what hostile clients try.

mod archives;
mod downloads;
mod lists;
mod load;
mod uploads;

use std::io::{Cursor, Write as _};

use serde_json::json;
use zip::ZipWriter;
use zip::write::SimpleFileOptions;

fn detail(text: &str) -> String {
    json!({"detail": text}).to_string()
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
