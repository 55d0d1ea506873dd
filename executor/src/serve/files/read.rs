//! The action `read` with the plain reader (spec 6.1).

use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::{FileError, is_binary, lines, text};
use crate::serve::action::Range;

/// Reads text lines, or a picture, document or film as a data URL.
pub(in crate::serve) fn read(path: &Path, range: Range) -> Result<String, FileError> {
    if let Some(mime) = media_type(path) {
        let encoded = STANDARD.encode(text::bytes(path)?);
        return Ok(format!("data:{mime};base64,{encoded}"));
    }
    if is_binary(path) {
        return Err(FileError::Binary);
    }
    Ok(lines::select(&text::read(path)?, range))
}

fn media_type(path: &Path) -> Option<&'static str> {
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

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: Range = Range { start: 0, end: -1 };

    #[test]
    fn text_media_and_binaries_are_told_apart() {
        let directory = tempfile::tempdir().unwrap();
        let read_back = |name: &str, content: &[u8]| {
            let path = directory.path().join(name);
            std::fs::write(&path, content).unwrap();
            read(&path, ALL)
        };
        assert_eq!(read_back("a.txt", "a\r\nü".as_bytes()).unwrap(), "a\nü");
        assert_eq!(
            read_back("i.PNG", b"\x89PN").unwrap(),
            "data:image/png;base64,iVBO"
        );
        assert!(matches!(
            read_back("b", b"\0\xff\xfe"),
            Err(FileError::Binary)
        ));
        assert!(matches!(
            read_back("l", b"\xe9t\xe9"),
            Err(FileError::NotText(_))
        ));
        assert!(matches!(
            read(directory.path(), ALL),
            Err(FileError::Directory(_))
        ));
        let missing = directory.path().join("no");
        assert!(matches!(read(&missing, ALL), Err(FileError::NotFound(_))));
    }

    #[test]
    fn what_might_never_end_is_not_read() {
        let error = read(Path::new("/dev/zero"), ALL).unwrap_err();
        assert!(matches!(error, FileError::Unreadable(_)));
    }
}
