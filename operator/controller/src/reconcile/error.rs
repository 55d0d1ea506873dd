//! Errors of a reconcile: their category in metrics and logs, the backoff that fits, and the
//! rejections that the status reports to the user.

use crate::pools::resize::ResizeError;
use crds::conditions::Reason;
use jiff::Timestamp;

use super::build::BuildError;
use super::init_message::InitError;
use super::plan::ActionRejection;
use super::status_patch::StatusPatchError;
use shared::kubernetes::api_messages;
use shared::kubernetes::client::CallError;
use shared::kubernetes::owned_objects::CreateError;

/// Error of a reconcile that is retried.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReconcileError {
    #[error("cannot apply: {0}")]
    Apply(#[from] ApplyError),
    #[error("cannot write the status: {0}")]
    Status(#[from] StatusPatchError),
    #[error(
        "the Sandbox is managed by installation {0}; to take it over, remove status.installation"
    )]
    OtherInstallation(String),
    /// The status tells the user; the reconcile is repeated at this time at the latest.
    #[error("cannot apply: {error}")]
    Rejected {
        #[source]
        error: ApplyError,
        requeue_at: Option<Timestamp>,
    },
}

/// Error of an action.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ApplyError {
    #[error(transparent)]
    Build(#[from] BuildError),
    #[error(transparent)]
    Init(#[from] InitError),
    #[error("spec.runtimeClassName: the cluster has no RuntimeClass {0}")]
    NoRuntimeClass(String),
    /// Snapshots of an earlier sandbox of this name keep the PVC.
    #[error("snapshots of an earlier sandbox keep the PVC {0}")]
    ClaimKept(String),
    #[error(transparent)]
    Create(#[from] CreateError),
    #[error(transparent)]
    Call(#[from] CallError),
}

impl From<ResizeError> for ApplyError {
    fn from(error: ResizeError) -> Self {
        match error {
            ResizeError::Build(error) => BuildError::from(error).into(),
            ResizeError::Call(error) => error.into(),
        }
    }
}

impl ReconcileError {
    /// Error category for metrics and logs.
    pub(crate) fn category(&self) -> &'static str {
        match self {
            Self::Apply(error) | Self::Rejected { error, .. } => error.category(),
            Self::OtherInstallation(_) => "other_installation",
            Self::Status(StatusPatchError::Encode(_)) => "encode",
            Self::Status(StatusPatchError::Call(error)) => error.category(),
        }
    }

    /// Returns whether the API server caused the error. Such errors pass soon, and no watch reports
    /// their end.
    pub(crate) fn is_server_error(&self) -> bool {
        match self {
            Self::Apply(ApplyError::Call(error) | ApplyError::Create(CreateError::Call(error)))
            | Self::Status(StatusPatchError::Call(error)) => error.is_server_error(),
            Self::Rejected { error, .. } => {
                matches!(error, ApplyError::Create(CreateError::Terminating { .. }))
            }
            Self::Apply(_) | Self::Status(_) | Self::OtherInstallation(_) => false,
        }
    }

    /// Latest time of the next reconcile; it can shorten the backoff.
    pub(crate) fn requeue_at(&self) -> Option<Timestamp> {
        match self {
            Self::Rejected { requeue_at, .. } => *requeue_at,
            Self::Apply(_) | Self::Status(_) | Self::OtherInstallation(_) => None,
        }
    }
}

impl ApplyError {
    fn category(&self) -> &'static str {
        match self {
            Self::Create(error) => error.category(),
            Self::Call(error) => error.category(),
            Self::ClaimKept(_) => "name_taken",
            // Errors that only the user can fix.
            Self::Build(_) | Self::Init(_) | Self::NoRuntimeClass(_) => "spec",
        }
    }

    /// Rejection to report in the status, if the user can act on the error.
    pub(super) fn rejection(&self) -> Option<ActionRejection> {
        let (reason, is_terminal) = match self {
            Self::Build(_)
            | Self::Init(_)
            | Self::NoRuntimeClass(_)
            | Self::Create(CreateError::Invalid(_)) => (Reason::InvalidSpec, true),
            Self::ClaimKept(_) | Self::Create(CreateError::NameTaken { .. }) => {
                (Reason::NameTaken, false)
            }
            Self::Create(CreateError::Terminating { .. }) => (Reason::CreatingPod, false),
            Self::Create(CreateError::Forbidden(_)) => (Reason::Refused, false),
            Self::Create(
                CreateError::Encode(_)
                | CreateError::Request(_)
                | CreateError::Call(_)
                | CreateError::NamespaceTerminating(_),
            )
            | Self::Call(_) => return None,
        };
        Some(ActionRejection {
            reason,
            message: api_messages::without_quota_usage(&self.to_string()),
            is_terminal,
        })
    }
}
