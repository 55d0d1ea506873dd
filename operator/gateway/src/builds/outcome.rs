//! Ends of builds.

use images::Inspection;

use shared::image_builds::reason::REGISTRY_ERROR;

use super::registries::QuestionError;

/// Facts of an image that was made.
#[derive(Debug, Default)]
pub(super) struct Made {
    pub(super) digest: Option<String>,
    pub(super) size_bytes: Option<i64>,
}

/// Cause of a failed build, with advice for the user of the client.
#[derive(Debug)]
pub(super) struct Failure {
    /// One word, for the status of the `ImageBuild`.
    pub(super) reason: &'static str,
    pub(super) message: String,
}

impl Failure {
    pub(super) fn new(reason: &'static str, message: &impl ToString) -> Self {
        Self {
            reason,
            message: message.to_string(),
        }
    }
}

impl From<Inspection> for Made {
    fn from(found: Inspection) -> Self {
        Self {
            digest: Some(found.digest.to_string()),
            size_bytes: i64::try_from(found.size).ok(),
        }
    }
}

impl From<QuestionError> for Failure {
    fn from(error: QuestionError) -> Self {
        Self::new(REGISTRY_ERROR, &error)
    }
}
