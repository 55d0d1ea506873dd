//! Settings of a client, from the environment or from code.

use std::net::SocketAddr;
use std::time::Duration;

use reqwest::Url;

use crate::Error;

/// Variable with the base URL of the gateway.
const URL_VARIABLE: &str = "SANDBOX_API_URL";
/// Variable with the API key.
const KEY_VARIABLE: &str = "SANDBOX_API_KEY";

/// Address, key and time limits of a client.
#[derive(Clone, derive_more::Debug)]
pub struct Settings {
    pub(crate) url: Url,
    #[debug(skip)]
    pub(crate) key: String,
    /// Time for a start, a resume or a snapshot to be ready.
    pub ready_timeout: Duration,
    /// Time for which calls of the runtime API are repeated.
    pub retry_timeout: Duration,
    /// Time for which calls of a sandbox are repeated while it is not available.
    pub recovery_timeout: Duration,
    /// Resume a sandbox that was paused on request when a call of it gets 503.
    pub resume_paused: bool,
    /// Keep connections for later calls. A call on one that a restarted gateway has closed can fail, if
    /// it may not be repeated.
    pub keep_connections: bool,
    /// Address that leads to the gateway, such as a forwarded port. The host of its URL is not looked
    /// up then, and sandboxes are called below that URL as well.
    pub connect_to: Option<SocketAddr>,
}

impl Settings {
    /// Settings for the gateway at `url` (`http` or `https`) and an API key.
    pub fn new(url: &str, key: &str) -> Result<Self, Error> {
        let parsed = Url::parse(url.trim_end_matches('/')).map_err(|error| {
            Error::Settings(format!("{url:?} is not a URL of a gateway: {error}"))
        })?;
        if !matches!(parsed.scheme(), "http" | "https") || !parsed.has_host() {
            let text = format!(
                "{url:?} is not a URL of a gateway (example: https://sandboxes.example.com)"
            );
            return Err(Error::Settings(text));
        }
        if key.is_empty() || key.chars().any(|c| !c.is_ascii_graphic()) {
            return Err(Error::Settings(
                "the API key must be one line of visible ASCII characters".into(),
            ));
        }
        Ok(Self {
            url: parsed,
            key: key.into(),
            ready_timeout: Duration::from_mins(15),
            retry_timeout: Duration::from_secs(20),
            recovery_timeout: Duration::from_mins(3),
            resume_paused: true,
            keep_connections: true,
            connect_to: None,
        })
    }

    /// Reads `SANDBOX_API_URL` and `SANDBOX_API_KEY`.
    pub fn from_env() -> Result<Self, Error> {
        Self::new(&variable(URL_VARIABLE)?, &variable(KEY_VARIABLE)?)
    }
}

fn variable(name: &str) -> Result<String, Error> {
    std::env::var(name).map_err(|_| Error::Settings(format!("the variable {name} is not set")))
}

#[cfg(test)]
mod tests {
    use super::Settings;

    #[test]
    fn settings_reject_what_cannot_be_a_gateway_or_a_key() {
        for (url, key) in [
            ("localhost:8080", "k"),
            ("ftp://host", "k"),
            ("", "k"),
            ("http://host", ""),
            ("http://host", "a\nb"),
        ] {
            assert!(Settings::new(url, key).is_err(), "{url} {key}");
        }
        let settings = Settings::new("http://host:1/", "secret").unwrap();
        assert_eq!(settings.url.as_str(), "http://host:1/");
        assert!(!format!("{settings:?}").contains("secret"));
    }
}
