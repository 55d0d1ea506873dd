//! Texts of Kubernetes client errors for users and logs. The `Display` of kube prints the status
//! object as a Rust value.

use kube::runtime::watcher;

/// The API server's message, or the cause of a failed request.
pub fn error_text(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) => status_text(status),
        other => with_sources(other),
    }
}

/// As [`error_text`], for a watch.
pub fn watch_error_text(error: &watcher::Error) -> String {
    match (error, watch_cause(error)) {
        (watcher::Error::WatchError(status), _) => status_text(status),
        (_, Some(cause)) => error_text(cause),
        (_, None) => error.to_string(),
    }
}

/// The request of a watch that failed.
pub fn watch_cause(error: &watcher::Error) -> Option<&kube::Error> {
    match error {
        watcher::Error::InitialListFailed(cause)
        | watcher::Error::WatchStartFailed(cause)
        | watcher::Error::WatchFailed(cause) => Some(cause),
        watcher::Error::WatchError(_) | watcher::Error::NoResourceVersion => None,
    }
}

/// Message of a status object, which some servers leave empty.
pub fn status_text(status: &kube::core::Status) -> String {
    match (status.message.as_str(), status.reason.as_str()) {
        ("", "") => format!("the API server responded {}", status.code),
        ("", reason) => format!("the API server responded {} {reason}", status.code),
        (message, _) => message.to_owned(),
    }
}

/// The error with its causes, unless they are in its own text: "error trying to connect" alone does
/// not help.
pub fn with_sources(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text = format!("{text}: {cause_text}");
        }
        source = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use kube::core::Status;

    use super::*;

    #[test]
    fn api_error_text_is_message_of_server() {
        let api_error = |message: &str, reason: &str| {
            let status = Status::failure(message, reason).with_code(404);
            error_text(&kube::Error::Api(status.boxed()))
        };
        let missing = "pods \"a\" not found";
        for (message, reason, text) in [
            (missing, "NotFound", missing),
            ("", "NotFound", "the API server responded 404 NotFound"),
            ("", "", "the API server responded 404"),
        ] {
            assert_eq!(api_error(message, reason), text);
        }
        let gone = Status::failure("too old", "Expired").with_code(410);
        let gone = watcher::Error::WatchError(gone.boxed());
        assert_eq!(watch_error_text(&gone), "too old");
    }

    #[test]
    fn transport_error_text_includes_causes() {
        let refused = std::io::Error::other("connection refused");
        let text = error_text(&kube::Error::Service(refused.into()));
        assert!(text.ends_with("connection refused"), "{text}");
        assert_eq!(text.matches("connection refused").count(), 1, "{text}");
    }
}
