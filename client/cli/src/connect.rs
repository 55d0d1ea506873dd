//! Client of the gateway: by its URL, or through a kubeconfig.

use std::time::Duration;

use client::{Client, Settings};

use crate::args::Access;
use crate::failure::Failure;
use crate::installation::Gateway;
use crate::progress;

/// Variable with the API key.
const KEY_VARIABLE: &str = "SANDBOX_API_KEY";
/// Advice to users who have neither.
const ADVICE: &str = "with `make run`, use `. .state/env`";
/// A person waits: a wrong address should not look like a slow gateway.
const RETRY_TIMEOUT: Duration = Duration::from_secs(5);
const RECOVERY_TIMEOUT: Duration = Duration::from_mins(1);
/// API keys are short.
const MAX_KEY_FILE_BYTES: u64 = 4096;

/// Client by the URL, or else by the kubeconfig. The one on the command line goes before a variable.
pub(crate) async fn client(access: &Access) -> Result<Client, Failure> {
    let is_chosen = access.installation.is_chosen();
    if is_chosen && access.api_url.is_some() {
        return Err(Failure::Usage(
            "--api-url and the options with a kubeconfig exclude each other".into(),
        ));
    }
    if is_chosen || access.url().is_none() {
        by_kubeconfig(access).await
    } else {
        by_url(access)
    }
}

pub(crate) fn by_url(access: &Access) -> Result<Client, Failure> {
    let key = key(access)?.ok_or_else(|| {
        Failure::Usage(format!("set {KEY_VARIABLE} or --api-key-file ({ADVICE})"))
    })?;
    new(Settings::new(&access.url().unwrap_or_default(), &key)?)
}

/// Forwards a port to the gateway. Without an API key, it is the first one of the installation.
async fn by_kubeconfig(access: &Access) -> Result<Client, Failure> {
    let installation = &access.installation;
    progress::waiting("connecting through the API server");
    let kubernetes = installation.connect().await.map_err(|error| {
        Failure::Usage(if installation.is_chosen() {
            error
        } else {
            format!(
                "set SANDBOX_API_URL or --api-url to the URL of the gateway ({ADVICE}), or use a \
                 kubeconfig: {error}"
            )
        })
    })?;
    let gateway = Gateway::find(installation, kubernetes).await?;
    // The variables belong together: a key of another gateway has no meaning here.
    let has_own_key = access.url().is_none() || access.api_key_file.is_some();
    let key = if has_own_key { key(access)? } else { None };
    let key = match key {
        Some(key) => key,
        None => gateway.first_key().await?,
    };
    let mut settings = Settings::new(&gateway.url()?, &key)?;
    settings.connect_to = Some(gateway.forward().await?);
    new(settings)
}

fn new(mut settings: Settings) -> Result<Client, Failure> {
    settings.retry_timeout = RETRY_TIMEOUT;
    settings.recovery_timeout = RECOVERY_TIMEOUT;
    Ok(Client::new(settings)?)
}

/// API key of the file or of the variable.
fn key(access: &Access) -> Result<Option<String>, Failure> {
    let Some(path) = &access.api_key_file else {
        let key = std::env::var(KEY_VARIABLE).ok();
        return Ok(key.filter(|key| !key.is_empty()));
    };
    let unreadable = |error| Failure::Local(format!("{}: {error}", path.display()));
    if std::fs::metadata(path).map_err(unreadable)?.len() > MAX_KEY_FILE_BYTES {
        return Err(Failure::Usage(format!(
            "{} is not a file with an API key",
            path.display()
        )));
    }
    let text = std::fs::read_to_string(path).map_err(unreadable)?;
    Ok(Some(text.trim().into()))
}
