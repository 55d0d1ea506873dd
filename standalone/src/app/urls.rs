//! URL form that works on this machine.

use std::net::SocketAddr;
use std::time::Duration;

use operator::urls::{Scheme, UrlForm, Urls};
use tokio::process::Command;
use tokio::time::timeout;

use crate::args::FormChoice;

const RESOLVE_TIMEOUT: Duration = Duration::from_secs(3);

/// Decides form and base of sandbox URLs for a gateway that listens on `address`.
pub(super) async fn choose(choice: FormChoice, address: SocketAddr) -> Urls {
    let form = match choice {
        FormChoice::Form(form) => form,
        FormChoice::Auto if resolves_localhost_subdomains().await => UrlForm::Nested,
        FormChoice::Auto => UrlForm::Loopback,
    };
    let host = match form {
        UrlForm::Nested | UrlForm::Flat => "localhost".to_owned(),
        _ if address.ip().is_unspecified() => "127.0.0.1".to_owned(),
        _ => address.ip().to_string(),
    };
    Urls {
        scheme: Scheme::Http,
        base: format!("{host}:{}", address.port()),
        form,
    }
}

/// Uses `getent` to resolve names below `localhost`: a static binary cannot load NSS modules.
async fn resolves_localhost_subdomains() -> bool {
    let lookup = Command::new("getent")
        .args(["hosts", "sandbox-probe.localhost"])
        .kill_on_drop(true)
        .output();
    match timeout(RESOLVE_TIMEOUT, lookup).await {
        Ok(Ok(output)) => output.status.success() && !output.stdout.is_empty(),
        _ => false,
    }
}
