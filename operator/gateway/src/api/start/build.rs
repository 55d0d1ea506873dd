//! Builds the Sandbox object of a start request.

use std::collections::BTreeMap;

use crds::int_or_string::IntOrString;
use crds::sandbox::{SandboxSpec, Session, Workspace};
use crds::{Sandbox, names};
use kube::api::ObjectMeta;

use super::request::Start;
use crate::api::{Api, ApiError};

/// Mount path of the workspace.
const MOUNT_PATH: &str = "/workspace";

impl Api {
    /// Builds the object, with a name derived from tenant, session and epoch.
    pub(super) fn build(
        &self,
        tenant: &str,
        start: &Start,
        epoch: u32,
    ) -> Result<Sandbox, ApiError> {
        let keys = &self.sandboxes.keys;
        let name = keys.session_runtime_id(&self.config.namespace, tenant, &start.session, epoch);
        let mut sandbox = Sandbox::new(&name, self.spec(tenant, start, epoch));
        sandbox.spec.sealed_env = self.seal(&name, &start.environment)?;
        sandbox.metadata = ObjectMeta {
            name: Some(name.clone()),
            namespace: Some(self.config.namespace.clone()),
            labels: Some(BTreeMap::from([
                (
                    names::SESSION_LABEL.to_owned(),
                    names::session_label(tenant, &start.session),
                ),
                (names::RUNTIME_ID_LABEL.to_owned(), name),
            ])),
            ..ObjectMeta::default()
        };
        Ok(sandbox)
    }

    fn spec(&self, tenant: &str, start: &Start, epoch: u32) -> SandboxSpec {
        let command = start.command.as_ref();
        SandboxSpec {
            image: Some(start.image.clone()),
            image_pull_policy: start.pull_policy,
            command: command.map(|c| c.words.clone()),
            working_dir: start.working_dir.clone(),
            resource_factor: start.resource_factor,
            runtime_class_name: start.runtime_class.clone(),
            security_context: start.security_context.clone(),
            workspace: Some(self.workspace()),
            session: Some(Session {
                tenant: tenant.to_owned(),
                id: start.session.clone(),
                epoch,
                command_line: command.and_then(|c| c.line.clone()),
            }),
            ..SandboxSpec::default()
        }
    }

    fn workspace(&self) -> Workspace {
        let config = &self.config.workspace;
        Workspace {
            size: IntOrString::String(config.size.clone()),
            storage_class_name: config.storage_class.clone(),
            mount_path: Some(MOUNT_PATH.to_owned()),
        }
    }

    fn seal(
        &self,
        name: &str,
        environment: &BTreeMap<String, String>,
    ) -> Result<Option<String>, ApiError> {
        if environment.is_empty() {
            return Ok(None);
        }
        let keys = &self.sandboxes.keys;
        let sealed = keys.seal(&self.config.namespace, name, environment);
        sealed.map(Some).map_err(|_| ApiError::Seal)
    }
}
