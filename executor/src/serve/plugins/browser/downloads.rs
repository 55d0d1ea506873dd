//! Downloads of pages: Chromium saves them under random names; a copy with an extension is told to
//! the agent (`docs/specs/browser.md`, section 1.4).

use std::collections::VecDeque;
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use browser::tabs::Download;

use crate::serve::identity::Identity;

pub(super) const FOLDER: &str = ".downloads";
/// Bytes that tell the type of a file.
const MAGIC_BYTES: u64 = 8 << 10;
/// Downloads that wait to be told.
const MAX_WAITING: usize = 256;

#[derive(Debug)]
pub(super) struct DownloadFolder {
    workspace: PathBuf,
    /// Names of completed downloads that were not told yet, oldest first.
    waiting: VecDeque<String>,
    told: u64,
}

impl DownloadFolder {
    pub(super) fn new(workspace: &Path) -> Self {
        Self {
            workspace: workspace.to_owned(),
            waiting: VecDeque::new(),
            told: 0,
        }
    }

    pub(super) fn path(&self) -> PathBuf {
        self.workspace.join(FOLDER)
    }

    pub(super) async fn create(&self, identity: &Identity) {
        let folder = self.path();
        let creating = identity.run(move || fs::create_dir_all(folder));
        if let Err(error) = creating.await.and_then(|created| created) {
            tracing::warn!(%error, "cannot create the folder of downloads");
        }
    }

    /// Adds the downloads of a step.
    pub(super) fn add(&mut self, downloads: &[Download]) {
        let completed = downloads.iter().filter(|download| download.is_completed);
        for download in completed {
            if self.waiting.len() < MAX_WAITING {
                self.waiting.push_back(download.guid.clone());
            }
        }
    }

    /// Copies the oldest download that was not told yet; the path of the copy.
    pub(super) async fn take(&mut self, identity: &Identity) -> Option<PathBuf> {
        while let Some(name) = self.waiting.pop_front() {
            let number = self.told + 1;
            let (source, workspace) = (self.path().join(&name), self.workspace.clone());
            let copying = identity.run(move || copy(&source, &workspace, number));
            match copying.await.and_then(|copied| copied) {
                Ok(path) => {
                    self.told = number;
                    return Some(path);
                }
                Err(error) => tracing::warn!(%error, "cannot copy a download"),
            }
        }
        None
    }
}

fn copy(source: &Path, workspace: &Path, number: u64) -> io::Result<PathBuf> {
    let mut file = File::open(source)?;
    let mut start = Vec::new();
    (&mut file).take(MAGIC_BYTES).read_to_end(&mut start)?;
    let extension = infer::get(&start).map(|kind| format!(".{}", kind.extension()));
    let extension = extension.unwrap_or_default();
    let path = workspace.join(format!("file_{number}{extension}"));
    if let Err(error) = fs::copy(source, &path) {
        // The volume may be full; half a file is of no use.
        let _ = fs::remove_file(&path);
        return Err(error);
    }
    Ok(path)
}
