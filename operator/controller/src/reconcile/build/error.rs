//! Errors of specs that cannot be built, with the path of the field.

/// Fault of the spec that keeps an object from being built.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    #[error("spec.image is missing")]
    NoImage,
    #[error("{path}: {detail}")]
    Invalid { path: String, detail: String },
}

impl BuildError {
    pub(super) fn at(path: impl Into<String>, detail: impl std::fmt::Display) -> Self {
        Self::Invalid {
            path: path.into(),
            detail: detail.to_string(),
        }
    }

    /// Deserialization error below `path`.
    pub(super) fn at_path(
        path: String,
        fault: &serde_path_to_error::Error<serde_json::Error>,
    ) -> Self {
        let field = fault.path().to_string();
        match field.as_str() {
            "." => Self::at(path, fault.inner()),
            field => Self::at(format!("{path}.{field}"), fault.inner()),
        }
    }
}
