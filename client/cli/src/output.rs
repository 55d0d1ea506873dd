//! Output without panics: results on standard output, notes on standard error.

use std::io::{self, IsTerminal as _, Write as _};

use clap::ValueEnum;
use serde::Serialize;

use crate::failure::Failure;
use crate::progress;
use crate::text::{escape_json, escape_lines};

/// Forms of a result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// Table with more columns
    Wide,
    Json,
    Yaml,
    /// Names alone, one per line
    Name,
}

/// Writes a result.
pub(crate) fn print(text: impl AsRef<[u8]>) -> Result<(), Failure> {
    progress::clear();
    let mut out = io::stdout().lock();
    out.write_all(text.as_ref())?;
    out.flush()?;
    Ok(())
}

/// Writes a line for the user, which is lost if nothing reads it.
pub(crate) fn note(text: &str) {
    progress::clear();
    let mut out = io::stderr().lock();
    let _ = writeln!(out, "{}", escape_lines(text));
}

/// As [`note`], if a person reads along.
pub(crate) fn hint(text: &str) {
    if io::stderr().is_terminal() {
        note(text);
    }
}

/// A document as JSON or YAML.
pub(crate) fn document(value: &impl Serialize, format: Format) -> Result<String, Failure> {
    let failed = |error: &dyn std::fmt::Display| {
        Failure::Local(format!("cannot encode the result: {error}"))
    };
    match format {
        Format::Yaml => serde_yaml::to_string(value).map_err(|error| failed(&error)),
        _ => serde_json::to_string_pretty(value)
            .map(|text| escape_json(&text) + "\n")
            .map_err(|error| failed(&error)),
    }
}
