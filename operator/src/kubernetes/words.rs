//! What errors of the Kubernetes client say, for people and logs. Its own texts repeat the answer of
//! the API server as the source code of a value.

use kube::runtime::watcher;

/// The API server's message, or what kept it from answering.
pub fn of(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) => of_status(status),
        other => with_sources(other),
    }
}

/// As [`of`], for a watch.
pub fn of_watch(error: &watcher::Error) -> String {
    match error {
        watcher::Error::InitialListFailed(cause)
        | watcher::Error::WatchStartFailed(cause)
        | watcher::Error::WatchFailed(cause) => of(cause),
        watcher::Error::WatchError(status) => of_status(status),
        watcher::Error::NoResourceVersion => error.to_string(),
    }
}

/// The message of an answer, which some servers leave empty.
pub fn of_status(status: &kube::core::Status) -> String {
    match (status.message.as_str(), status.reason.as_str()) {
        ("", "") => format!("the API server answers {}", status.code),
        ("", reason) => format!("the API server answers {} {reason}", status.code),
        (message, _) => message.to_owned(),
    }
}

/// The error with what caused it: "error trying to connect" alone helps nobody.
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
    fn an_answer_speaks_in_the_servers_words_alone() {
        let answer = |message: &str, reason: &str| {
            let status = Status::failure(message, reason).with_code(404);
            of(&kube::Error::Api(status.boxed()))
        };
        assert_eq!(
            answer("pods \"a\" not found", "NotFound"),
            "pods \"a\" not found"
        );
        assert_eq!(
            answer("", "NotFound"),
            "the API server answers 404 NotFound"
        );
        assert_eq!(answer("", ""), "the API server answers 404");
        let gone = Status::failure("too old", "Expired").with_code(410);
        assert_eq!(
            of_watch(&watcher::Error::WatchError(gone.boxed())),
            "too old"
        );
    }

    #[test]
    fn no_answer_is_told_with_its_causes() {
        let refused = std::io::Error::other("connection refused");
        let said = of(&kube::Error::Service(refused.into()));
        assert!(said.ends_with("connection refused"), "{said}");
        assert_eq!(said.matches("connection refused").count(), 1, "{said}");
    }
}
