//! The actions `read` with `impl_source: "default"` and `write` (`docs/specs/executor.md`, sections
//! 6.1 and 6.3), with a limit of size.

use std::io::{Read as _, Write as _};
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::binary::is_binary;
use super::charset::Charset;
use super::directories::make_directories;
use super::error::FileError;
use super::open;
use super::replace::{Replacement, SymlinkPolicy, replace_file};
use super::text_document::{TextDocument, normalize_newlines};
use crate::serve::action::Range;

/// Largest file in an observation, in bytes. Larger ones are for `/download_files`.
const MAX_SIZE: u64 = 256 << 20;
/// Mode of a new file, independent of the umask.
const MODE: u32 = 0o664;

/// Reads lines of text, or an image, PDF, video or sound as a data URL.
pub(crate) fn read(path: &Path, range: Range) -> Result<String, FileError> {
    if let Some(mime) = media_type(path) {
        let encoded = STANDARD.encode(bytes(path)?);
        return Ok(format!("data:{mime};base64,{encoded}"));
    }
    if is_binary(path) {
        return Err(FileError::Binary);
    }
    let content = text(bytes(path)?, path)?;
    if content.contains('\r') {
        return Ok(select(&normalize_newlines(&content), range));
    }
    Ok(select(&content, range))
}

/// Media type of a file that is read as a data URL.
pub(crate) fn media_type(path: &Path) -> Option<&'static str> {
    let extension = path.extension()?.to_str()?.to_ascii_lowercase();
    Some(match extension.as_str() {
        "png" => "image/png",
        "jpg" | "jpeg" => "image/jpeg",
        "bmp" => "image/bmp",
        "gif" => "image/gif",
        "pdf" => "application/pdf",
        "mp4" => "video/mp4",
        "webm" => "video/webm",
        "ogg" => "audio/ogg",
        _ => return None,
    })
}

/// Writes a whole file or replaces lines. An existing file keeps mode and owner.
pub(crate) fn write(path: &Path, content: &str, range: Range) -> Result<(), FileError> {
    let of = |error| FileError::of(error, path);
    if path.is_dir() {
        return Err(FileError::Directory(path.display().to_string()));
    }
    if let Some(parent) = path.parent() {
        make_directories(parent)?;
    }
    match bytes(path) {
        Ok(old) => {
            let old = TextDocument::of(Charset::UTF_8, text(old, path)?);
            let new = replace_lines(&old, content, range);
            replace_file(path, new.raw().as_bytes()).map_err(of)
        }
        Err(FileError::NotFound(_)) => create(path, content),
        Err(error) => Err(error),
    }
}

fn create(path: &Path, content: &str) -> Result<(), FileError> {
    let of = |error| FileError::of(error, path);
    let mut new = Replacement::begin(path, SymlinkPolicy::Follow).map_err(of)?;
    writeln!(new.file, "{content}").map_err(of)?;
    // The umask applies to the mode at creation.
    let mode = new.set_mode(MODE);
    new.commit().map_err(of)?;
    mode.map_err(|source| FileError::Permissions {
        path: path.display().to_string(),
        source,
    })
}

/// Returns the selected lines of `text`, each with its newline.
fn select(text: &str, range: Range) -> String {
    let lines: Vec<&str> = text.split_inclusive('\n').collect();
    let count = lines.len();
    let start = clamp(range.start, count);
    if range.end == -1 {
        return lines[start..].concat();
    }
    let begin = start.min(count.saturating_sub(2));
    let end = clamp(range.end, count).max(begin + 1).min(count);
    lines[begin..end].concat()
}

/// Replaces the lines of a range by `content` and a newline. They get the newlines of the document,
/// except if all lines are replaced.
fn replace_lines(old: &TextDocument, content: &str, range: Range) -> TextDocument {
    if (range.start, range.end) == (0, -1) {
        return TextDocument::of(Charset::UTF_8, format!("{content}\n"));
    }
    let text = old.text();
    let start = offset(text, range.start);
    let end = if range.end == -1 {
        text.len()
    } else {
        offset(text, range.end)
    };
    let new = format!("{content}\n");
    if end >= start {
        return old.replace(start..end, &new);
    }
    // With an end before the start, the lines between occur twice.
    let repeated = format!("{new}{}", &text[end..start]);
    old.replace(start..start, &repeated)
}

/// Byte offset of the start of a line.
fn offset(text: &str, line: i64) -> usize {
    let count = usize::try_from(line).unwrap_or(0);
    text.split_inclusive('\n').take(count).map(str::len).sum()
}

fn clamp(index: i64, count: usize) -> usize {
    usize::try_from(index).unwrap_or(0).min(count)
}

/// Reads a regular file. A device or a pipe could be endless or block.
pub(crate) fn bytes(path: &Path) -> Result<Vec<u8>, FileError> {
    let of = |error| FileError::of(error, path);
    let file = open(path).map_err(of)?;
    let found = file.metadata().map_err(of)?;
    if found.is_dir() {
        return Err(FileError::Directory(path.display().to_string()));
    }
    let mut content = Vec::new();
    if found.is_file() && found.len() <= MAX_SIZE {
        // Files in `/proc` have size 0, and some never end.
        let mut limited = file.take(MAX_SIZE + 1);
        limited.read_to_end(&mut content).map_err(of)?;
        if content.len() as u64 <= MAX_SIZE {
            return Ok(content);
        }
    }
    Err(FileError::Unreadable(path.display().to_string()))
}

fn text(content: Vec<u8>, path: &Path) -> Result<String, FileError> {
    String::from_utf8(content).map_err(|_| FileError::NotText(path.display().to_string()))
}
