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
        FormChoice::Auto if address.ip().is_unspecified() => UrlForm::Loopback,
        // Each sandbox would need another address than this one.
        FormChoice::Auto => UrlForm::Path,
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

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn sandboxes_of_a_gateway_on_one_address_have_urls_on_it() {
        let urls = choose(FormChoice::Auto, SocketAddr::from(([127, 0, 0, 1], 5000))).await;
        // Names below localhost lead to this address, on machines that resolve them.
        assert!(
            matches!(urls.form, UrlForm::Path | UrlForm::Nested),
            "{urls:?}"
        );
    }
}
