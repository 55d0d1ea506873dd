//! Opens an address in the browser. One with a key goes through a file that only the user can read:
//! the arguments of a process are visible to all users of the machine.

use std::ffi::{OsStr, OsString};
use std::fs::{self, DirEntry};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use client::Address;

use crate::output::hint;

/// Programs that open a URL or a file, on Linux and on macOS.
const OPENERS: [&str; 2] = ["xdg-open", "open"];
/// Begin of the names of the files.
const PREFIX: &str = "sandbox-open-";
/// Time for a browser to start and to read its file. A later call removes the file.
const FILE_TTL: Duration = Duration::from_mins(1);

pub(super) fn open(address: &Address) {
    let target = if address.is_secret {
        redirect(&directory(), &address.url).map(OsString::from)
    } else {
        Ok(OsString::from(&address.url))
    };
    match target {
        Ok(target) if start(&target) => {
            if address.is_secret {
                hint("if the browser cannot read its file, open the address in it");
            }
        }
        Ok(_) => hint("no program to open it was found; open it in a browser"),
        Err(error) => hint(&format!(
            "cannot write a file for the browser ({error}); open it in a browser"
        )),
    }
}

fn start(target: &OsStr) -> bool {
    OPENERS.iter().any(|program| {
        let mut command = Command::new(program);
        command
            .arg(target)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        command.spawn().is_ok()
    })
}

/// Directory of the user that is gone after a logout, or else that of temporary files.
fn directory() -> PathBuf {
    let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    runtime
        .filter(|path| path.is_absolute() && path.is_dir())
        .unwrap_or_else(std::env::temp_dir)
}

/// Writes a page that leads to the URL, with mode 0600.
fn redirect(directory: &Path, url: &str) -> io::Result<PathBuf> {
    remove_old(directory);
    let mut file = tempfile::Builder::new()
        .prefix(PREFIX)
        .suffix(".html")
        .tempfile_in(directory)?;
    file.write_all(page(url).as_bytes())?;
    let (_, path) = file.keep().map_err(|error| error.error)?;
    Ok(path)
}

fn page(url: &str) -> String {
    let url = url
        .replace('&', "&amp;")
        .replace('"', "&quot;")
        .replace('<', "&lt;")
        .replace('>', "&gt;");
    format!(
        "<!DOCTYPE html>\n<meta charset=\"utf-8\">\n<title>sandbox</title>\n\
         <meta name=\"referrer\" content=\"no-referrer\">\n\
         <meta http-equiv=\"refresh\" content=\"0; url={url}\">\n\
         <a href=\"{url}\">Open the page</a>\n"
    )
}

/// Removes the files of earlier calls. Those of other users stay.
fn remove_old(directory: &Path) {
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let is_own = entry.file_name().to_string_lossy().starts_with(PREFIX);
        if is_own && is_old(&entry) {
            let _ = fs::remove_file(entry.path());
        }
    }
}

fn is_old(entry: &DirEntry) -> bool {
    let modified = entry.metadata().and_then(|found| found.modified());
    let age = modified.ok().and_then(|modified| modified.elapsed().ok());
    age.is_some_and(|age| age > FILE_TTL)
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::time::SystemTime;

    use super::*;

    #[test]
    fn page_leads_to_its_url_and_to_nothing_else() {
        let page = page("http://a/?tkn=1&b=\"><script>");
        let expected = "content=\"0; url=http://a/?tkn=1&amp;b=&quot;&gt;&lt;script&gt;\"";
        assert!(page.contains(expected), "{page}");
        assert!(!page.contains("<script>"), "{page}");
    }

    #[test]
    fn files_of_earlier_calls_are_removed_when_they_are_old() {
        let directory = tempfile::tempdir().unwrap();
        let old = redirect(directory.path(), "http://old").unwrap();
        let recent = redirect(directory.path(), "http://recent").unwrap();
        let other = directory.path().join("other");
        for path in [&old, &other] {
            let file = File::options().append(true).create(true).open(path);
            let then = SystemTime::now() - 2 * FILE_TTL;
            file.unwrap().set_modified(then).unwrap();
        }
        let new = redirect(directory.path(), "http://new").unwrap();
        assert!(!old.exists());
        assert!(recent.exists() && other.exists() && new.exists());
    }
}
