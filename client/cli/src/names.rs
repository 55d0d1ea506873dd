//! Sandboxes by name: session id, runtime id, or a prefix that only one of them has.

use client::{Client, RuntimeInfo, Sandbox, Status};

use crate::failure::Failure;
use crate::progress;
use crate::text::escape;

/// Letters of a runtime id.
const ID_LENGTH: usize = 16;
/// Letters of a random name.
const NAME_LETTERS: usize = 8;
/// Candidates that an error lists.
const MAX_CANDIDATES: usize = 10;

/// Finds a sandbox that is not stopped.
pub(crate) async fn find(client: &Client, name: &str) -> Result<RuntimeInfo, Failure> {
    if name.is_empty() {
        return Err(Failure::Usage(
            "the name of a sandbox must not be empty".into(),
        ));
    }
    if is_runtime_id(name) {
        match client.runtime(name).await {
            Ok(info) if info.status != Status::Stopped => return Ok(info),
            Ok(_) | Err(client::Error::NotFound(_)) => {}
            Err(error) => return Err(error.into()),
        }
    }
    if let Some(info) = client.session(name).await?
        && info.status != Status::Stopped
    {
        return Ok(info);
    }
    by_prefix(name, client.list().await?)
}

/// A handle of the sandbox of this name, which shows how it wakes.
pub(crate) async fn sandbox(client: &Client, name: &str) -> Result<Sandbox, Failure> {
    let info = find(client, name).await?;
    Ok(client.sandbox(info).on_progress(progress::step))
}

/// A new name with this beginning.
pub(crate) fn random(prefix: &str) -> String {
    let letters = std::iter::repeat_with(fastrand::lowercase).take(NAME_LETTERS);
    format!("{prefix}-{}", letters.collect::<String>())
}

fn is_runtime_id(name: &str) -> bool {
    name.len() == ID_LENGTH && name.bytes().all(|byte| byte.is_ascii_lowercase())
}

fn by_prefix(prefix: &str, all: Vec<RuntimeInfo>) -> Result<RuntimeInfo, Failure> {
    let matches = |info: &RuntimeInfo| {
        info.session_id.starts_with(prefix) || info.runtime_id.starts_with(prefix)
    };
    let mut found: Vec<_> = all.into_iter().filter(matches).collect();
    match found.len() {
        0 => Err(Failure::Usage(format!(
            "no sandbox is called {}, or has a name or id that begins so; `sandbox list` shows those that run",
            escape(prefix)
        ))),
        1 => Ok(found.remove(0)),
        count => {
            let names = found.iter().take(MAX_CANDIDATES);
            let names: Vec<_> = names
                .map(|info| format!("  {} ({})", escape(&info.session_id), info.runtime_id))
                .collect();
            let more = if count > MAX_CANDIDATES {
                "\n  …"
            } else {
                ""
            };
            let text = format!(
                "{} can be {count} sandboxes:\n{}{more}",
                escape(prefix),
                names.join("\n")
            );
            Err(Failure::Usage(text))
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn info(session: &str, id: &str) -> RuntimeInfo {
        let text = json!({"runtime_id": id, "session_id": session, "url": "http://x", "status": "running"});
        serde_json::from_value(text).unwrap()
    }

    fn all() -> Vec<RuntimeInfo> {
        vec![
            info("build-1", "abcdefghijklmnop"),
            info("build-2", "bcdefghijklmnopq"),
            info("Abc", "zzzzzzzzzzzzzzzz"),
        ]
    }

    #[test]
    fn prefix_of_one_name_or_id_is_enough() {
        assert_eq!(by_prefix("build-2", all()).unwrap().session_id, "build-2");
        assert_eq!(by_prefix("abc", all()).unwrap().session_id, "build-1");
    }

    #[test]
    fn ambiguous_prefix_lists_the_candidates() {
        let error = by_prefix("build", all()).unwrap_err().to_string();
        assert!(
            error.contains("build-1 (abcdefghijklmnop)") && error.contains("build-2 ("),
            "{error}"
        );
        assert!(by_prefix("c", all()).is_err());
    }

    #[test]
    fn many_candidates_are_cut() {
        let many: Vec<_> = (0..50)
            .map(|n| info(&format!("s{n}"), "abcdefghijklmnop"))
            .collect();
        let error = by_prefix("s", many).unwrap_err().to_string();
        assert_eq!(error.lines().count(), 12, "{error}");
    }
}
