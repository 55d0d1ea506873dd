//! The error that ends a program, in the form that models know: class and message of the Python
//! exception (`docs/specs/browser.md`, section 2.2).

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{class}: {message}")]
pub struct StepError {
    /// `Error`, `TimeoutError`, `ValueError` and so on.
    pub class: &'static str,
    pub message: String,
}

impl StepError {
    pub fn new(class: &'static str, message: impl Into<String>) -> Self {
        Self {
            class,
            message: message.into(),
        }
    }
}
