//! Options of the browser.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::cli::ServeOptions;

/// Directory of OpenHands' workspaces.
const WORKSPACE: &str = "/workspace";

#[derive(Debug, Clone)]
pub(in crate::serve) struct BrowserSettings {
    /// Chromium, instead of the one that the image has in a usual place.
    pub(super) program: Option<PathBuf>,
    /// Time without use after which the browser ends.
    pub(super) idle_timeout: Option<Duration>,
    /// True to start with the server instead of at the first use.
    pub(super) starts_eagerly: bool,
    /// True to keep cookies and logins in the workspace.
    pub(super) keeps_profile: bool,
    /// Bytes.
    pub(super) memory_limit: Option<u64>,
    /// Length from which a tree text has only visible elements.
    pub(super) max_tree_chars: Option<usize>,
    /// True if `--plugins` names the browser.
    pub(super) is_named: bool,
    pub(in crate::serve) offers_view: bool,
    pub(in crate::serve) offers_cdp: bool,
    working_dir: PathBuf,
}

impl BrowserSettings {
    /// `None` if the browser is disabled.
    pub(in crate::serve) fn of(options: &ServeOptions) -> Option<Self> {
        let seconds = Some(options.browser_idle_seconds).filter(|seconds| *seconds > 0);
        let mebibytes = Some(options.browser_memory_mib).filter(|limit| *limit > 0);
        let choice = options.choices().find(|choice| choice.name == "browser");
        let has = |option| {
            let mut choice = choice.iter();
            choice.any(|choice| choice.options.contains(&option))
        };
        let has_key = !options.session_api_key.is_empty();
        (!options.no_enable_browser).then(|| Self {
            program: options.browser_program.clone(),
            idle_timeout: seconds.map(Duration::from_secs),
            starts_eagerly: has("start"),
            keeps_profile: has("profile"),
            // Without a key any page could drive the browser.
            offers_view: has_key && has("view"),
            offers_cdp: has_key && has("cdp"),
            is_named: choice.is_some(),
            max_tree_chars: Some(options.browser_max_tree_chars).filter(|max| *max > 0),
            memory_limit: mebibytes.map(|limit| limit << 20),
            working_dir: options.working_dir.clone(),
        })
    }

    /// Directory of downloads: the workspace, of which the working directory may be a part.
    pub(super) fn workspace(&self) -> &Path {
        if self.working_dir.starts_with(WORKSPACE) {
            Path::new(WORKSPACE)
        } else {
            &self.working_dir
        }
    }
}
