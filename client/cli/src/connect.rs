//! Client of the gateway by flags and environment.

use std::time::Duration;

use client::{Client, Settings};

use crate::args::Access;
use crate::failure::Failure;

/// Variable with the API key.
const KEY_VARIABLE: &str = "SANDBOX_API_KEY";
/// Way out for users who have neither.
const ADVICE: &str = "with `make run`, use `. .state/env`";
/// A person waits: a wrong address should not look like a slow gateway.
const RETRY_TIMEOUT: Duration = Duration::from_secs(5);
const RECOVERY_TIMEOUT: Duration = Duration::from_mins(1);
/// API keys are short.
const MAX_KEY_FILE_BYTES: u64 = 4096;

pub(crate) fn client(access: &Access) -> Result<Client, Failure> {
    let url = access.api_url.as_deref().filter(|url| !url.is_empty());
    let url = url.ok_or_else(|| {
        Failure::Usage(format!(
            "set SANDBOX_API_URL or --api-url to the URL of the gateway ({ADVICE})"
        ))
    })?;
    let mut settings = Settings::new(url, &key(access)?)?;
    settings.retry_timeout = RETRY_TIMEOUT;
    settings.recovery_timeout = RECOVERY_TIMEOUT;
    Ok(Client::new(settings)?)
}

fn key(access: &Access) -> Result<String, Failure> {
    let Some(path) = &access.api_key_file else {
        let key = std::env::var(KEY_VARIABLE)
            .ok()
            .filter(|key| !key.is_empty());
        let missing = || Failure::Usage(format!("set {KEY_VARIABLE} or --api-key-file ({ADVICE})"));
        return key.ok_or_else(missing);
    };
    let unreadable = |error| Failure::Local(format!("{}: {error}", path.display()));
    if std::fs::metadata(path).map_err(unreadable)?.len() > MAX_KEY_FILE_BYTES {
        return Err(Failure::Usage(format!(
            "{} is not a file with an API key",
            path.display()
        )));
    }
    let text = std::fs::read_to_string(path).map_err(unreadable)?;
    Ok(text.trim().into())
}
