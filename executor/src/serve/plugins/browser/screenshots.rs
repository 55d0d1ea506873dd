//! Screenshots as files of the workspace (`docs/specs/browser.md`, section 1.4).

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use jiff::Zoned;

use crate::serve::identity::Identity;

const FOLDER: &str = ".browser_screenshots";

/// Path of the written file; `None` if it cannot be written.
pub(super) async fn save(identity: &Identity, directory: &Path, png: &[u8]) -> Option<String> {
    let folder = directory.join(FOLDER);
    let name = Zoned::now()
        .strftime("screenshot_%Y%m%d_%H%M%S_%6f.png")
        .to_string();
    let png = png.to_vec();
    let writing = identity.run(move || write(&folder, &name, &png));
    match writing.await.and_then(|written| written) {
        Ok(path) => path.into_os_string().into_string().ok(),
        Err(error) => {
            tracing::warn!(%error, "cannot write a screenshot");
            None
        }
    }
}

fn write(folder: &Path, name: &str, png: &[u8]) -> io::Result<PathBuf> {
    match fs::create_dir(folder) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    let path = folder.join(name);
    fs::write(&path, png)?;
    Ok(path)
}
