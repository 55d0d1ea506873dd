//! Builds the Sandbox object of a start request.

use std::collections::BTreeMap;

use crds::sandbox::{SandboxSpec, Session};
use crds::{Sandbox, names};
use kube::api::ObjectMeta;

use super::request::Start;
use crate::api::{Api, ApiError};

impl Api {
    /// Builds the object of this name, which derives from tenant, session and epoch.
    pub(super) fn build(
        &self,
        name: &str,
        tenant: &str,
        start: &Start,
        epoch: u32,
    ) -> Result<Sandbox, ApiError> {
        let namespace = &self.config().namespace;
        let mut sandbox = Sandbox::new(name, SandboxSpec::clone(&start.spec));
        sandbox.spec.session = Some(Session {
            tenant: tenant.to_owned(),
            id: start.session.clone(),
            epoch,
            command_line: start.command_line.clone(),
        });
        if !start.environment.is_empty() {
            let keys = &self.sandboxes.keys;
            let sealed = keys.seal(namespace, name, &start.environment);
            sandbox.spec.sealed_env = Some(sealed.map_err(|_| ApiError::Seal)?);
        }
        sandbox.metadata = ObjectMeta {
            name: Some(name.to_owned()),
            namespace: Some(namespace.clone()),
            labels: Some(BTreeMap::from([
                (
                    names::SESSION_LABEL.to_owned(),
                    names::session_label(tenant, &start.session),
                ),
                (names::RUNTIME_ID_LABEL.to_owned(), name.to_owned()),
            ])),
            ..ObjectMeta::default()
        };
        Ok(sandbox)
    }
}
