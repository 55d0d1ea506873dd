//! API key of a stream, which is checked again while the stream is open.

use jiff::Timestamp;
use secrecy::{ExposeSecret as _, SecretString};
use shared::tenants::Tenants;
use tokio::sync::watch;

#[derive(Debug)]
pub(crate) struct KeyCheck {
    tenants: Tenants,
    key: SecretString,
    tenant: String,
    versions: watch::Receiver<u64>,
}

impl KeyCheck {
    /// Checks a key that has been accepted for this tenant.
    pub(crate) fn new(tenants: &Tenants, key: &str, tenant: &str) -> Self {
        Self {
            tenants: tenants.clone(),
            key: key.to_owned().into(),
            tenant: tenant.to_owned(),
            versions: tenants.versions(),
        }
    }

    pub(crate) fn tenant(&self) -> &str {
        &self.tenant
    }

    /// Returns whether the key is still one of the tenant.
    pub(crate) fn is_valid(&self) -> bool {
        let key = self.key.expose_secret();
        let found = self.tenants.authenticate(Some(key), Timestamp::now());
        found.is_ok_and(|found| found.tenant.name == self.tenant)
    }

    /// Returns whether the API keys have changed since the last call of [`KeyCheck::changed`].
    pub(super) fn has_changed(&self) -> bool {
        self.versions.has_changed().unwrap_or(true)
    }

    /// Waits until the API keys have changed.
    pub(crate) async fn changed(&mut self) {
        // The sender lives in the tenants, so this cannot fail.
        let _ = self.versions.changed().await;
    }
}
