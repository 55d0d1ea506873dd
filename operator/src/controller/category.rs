//! Fixed names of what can go wrong in a pass, for metrics and logs.

use super::apply::ApplyError;
use super::reconcile::ReconcileError;
use super::report::ReportError;

impl ReconcileError {
    pub(super) fn category(&self) -> &'static str {
        match self {
            Self::Apply(error) | Self::Refused { error, .. } => error.category(),
            Self::Report(error) => error.category(),
        }
    }
}

impl ApplyError {
    fn category(&self) -> &'static str {
        match self {
            Self::Create(error) => error.category(),
            Self::Call(error) => error.category(),
            // What only the user can mend.
            Self::Build(_) | Self::Init(_) | Self::NoRuntimeClass(_) => "spec",
        }
    }
}

impl ReportError {
    fn category(&self) -> &'static str {
        match self {
            Self::Encode(_) => "encode",
            Self::Call(error) => error.category(),
        }
    }
}
