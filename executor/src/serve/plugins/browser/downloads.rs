//! Downloads of pages: Chromium saves them under random names; a copy with an extension is told to
//! the agent (`docs/specs/browser.md`, section 1.4).

use std::collections::VecDeque;
use std::fs::{self, File};
use std::io::{self, Read as _, Seek as _};
use std::path::{Path, PathBuf};

use browser::tabs::Download;

use crate::serve::identity::Identity;

pub(super) const FOLDER: &str = ".downloads";
/// Bytes that tell the type of a file.
const MAGIC_BYTES: u64 = 8 << 10;
/// Names that are tried for a copy.
const MAX_TRIES: u64 = 10_000;
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
            } else {
                tracing::warn!(name = download.guid, "too many downloads: one is not told");
            }
        }
    }

    /// Copies the oldest download that was not told yet; the path of the copy.
    pub(super) async fn take(&mut self, identity: &Identity) -> Option<PathBuf> {
        while let Some(name) = self.waiting.pop_front() {
            let (source, workspace, told) =
                (self.path().join(&name), self.workspace.clone(), self.told);
            let copying = identity.run(move || copy(&source, &workspace, told + 1));
            match copying.await.and_then(|copied| copied) {
                Ok((number, path)) => {
                    self.told = number;
                    return Some(path);
                }
                Err(error) => tracing::warn!(%error, "cannot copy a download"),
            }
        }
        None
    }
}

/// Copies a file to `file_N` with the extension of its content; N is the first free number from
/// `number` on: files of earlier servers and of the user stay.
fn copy(source: &Path, workspace: &Path, number: u64) -> io::Result<(u64, PathBuf)> {
    let mut file = File::open(source)?;
    let mut start = Vec::new();
    (&mut file).take(MAGIC_BYTES).read_to_end(&mut start)?;
    file.rewind()?;
    let extension = infer::get(&start).map(|kind| format!(".{}", kind.extension()));
    let extension = extension.unwrap_or_default();
    for number in number..number.saturating_add(MAX_TRIES) {
        let path = workspace.join(format!("file_{number}{extension}"));
        let mut target = match File::create_new(&path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => continue,
            created => created?,
        };
        if let Err(error) = io::copy(&mut file, &mut target) {
            // The volume may be full; half a file is of no use.
            let _ = fs::remove_file(&path);
            return Err(error);
        }
        return Ok((number, path));
    }
    Err(io::ErrorKind::AlreadyExists.into())
}
