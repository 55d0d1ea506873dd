//! The actions `browse` and `browse_interactive` as observations (`docs/specs/browser.md`,
//! section 1).

use super::Executor;
use crate::serve::observation::Observation;
use crate::serve::plugins::browser::{Browse, BrowseOutcome, evaluation, page_failed};

/// Clients match this text.
const NO_BROWSER: &str = "Browser functionality is not supported or disabled.";

impl Executor {
    pub(super) async fn browse(&self, action: Browse) -> Observation {
        let Some(browser) = &self.plugins.browser else {
            return Observation::error(NO_BROWSER.to_owned());
        };
        if let Some((content, extras)) = evaluation(&action.kind) {
            return Observation::browse(content, extras);
        }
        match browser.browse(&action).await {
            BrowseOutcome::Unsupported => Observation::error(NO_BROWSER.to_owned()),
            BrowseOutcome::Download { program, path } => Observation::download(&program, path),
            BrowseOutcome::Page(page) => {
                let (content, extras) = page.into_observation(&action.kind);
                Observation::browse(content, extras)
            }
            BrowseOutcome::Failed(error) => {
                let (content, extras) = page_failed(&action.kind, error);
                Observation::browse(content, extras)
            }
        }
    }
}
