//! Signed messages from the controller to a supervisor, and the supervisor's reports.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::digest::{SHA256, digest};
use serde::{Deserialize, Serialize};

use super::persistence::{KeptState, LayerRequest, SaveRequest, SnapshotRequest, StateAccess};
use super::sealing::SealedInit;
use super::token::{Signer, TokenError, Verifier};

/// Validity of a control call after signing, in seconds.
pub const VALIDITY_SECONDS: i64 = 120;

/// Seconds that a command without a port must run before it counts as ready. One that terminates at
/// once never does.
pub const MIN_RUN_SECONDS: u64 = 2;

/// Maximum wait of `/v1/ready`, in seconds.
pub const MAX_READY_WAIT_SECONDS: u64 = 60;

/// A grant, bound to one Pod and an expiry.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ControlMessage {
    /// Uid of the Pod that the call is for.
    pub pod_uid: String,
    /// Unix time in seconds after which the call is invalid.
    pub expires: i64,
    pub grant: Grant,
}

/// The call that a message permits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Grant {
    /// As `SealedInit`, but in clear, for supervisors of earlier versions.
    Init(Box<Init>),
    /// Start this command, encrypted to the key of the Pod. Valid once per Pod; the same message may
    /// be repeated.
    SealedInit(SealedInit),
    /// Report whether the command is ready.
    Ready,
    /// Stop the command and keep its state.
    Save(SaveRequest),
    /// Copy the state of the command, which goes on.
    Snapshot(SnapshotRequest),
    /// Read the changed files of a snapshot.
    Layer(LayerRequest),
}

/// Init message of a dormant Pod.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Init {
    /// Program and arguments. The program is looked up on the `PATH` of the resulting environment.
    pub command: Vec<String>,
    /// Absolute directory in which the command starts; created if it is missing.
    pub working_dir: String,
    /// Variables that override the container's environment.
    pub environment: BTreeMap<String, String>,
    pub probe: Probe,
    /// Uid of the Sandbox that the Pod belongs to from now on. Absent in messages of earlier
    /// versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sandbox_uid: Option<String>,
    /// Access to the state on the volume. Present if the Pod has [`PodPersistence`].
    ///
    /// [`PodPersistence`]: super::persistence::PodPersistence
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<StateAccess>,
}

/// Sandbox that a supervisor was initialized for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PodOwner {
    /// Uid of the Sandbox.
    pub sandbox_uid: String,
    /// SHA-256 of the init message as JSON, in unpadded base64url.
    pub init_digest: String,
}

impl Init {
    /// Owner that the supervisor reports once it has accepted this message.
    pub fn owner(&self) -> Option<PodOwner> {
        // Maps with text as keys can always be serialized.
        let message = serde_json::to_vec(self).ok()?;
        Some(PodOwner {
            sandbox_uid: self.sandbox_uid.clone()?,
            init_digest: URL_SAFE_NO_PAD.encode(digest(&SHA256, &message)),
        })
    }
}

/// Readiness rule of the command.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Probe {
    /// Port that must accept connections. Absent: ready after [`MIN_RUN_SECONDS`].
    pub port: Option<u16>,
    /// Path on that port that must answer 2xx, for example `/alive`. Absent: a connection is
    /// enough.
    pub path: Option<String>,
}

/// Body of the responses of `/v1/init` and `/v1/ready`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ReadyReport {
    pub state: SupervisorState,
    /// Last probe error or start error, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    /// While dormant: public key for [`SealedInit`]. Supervisors of earlier versions have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sealing_key: Option<String>,
    /// After the init message: the Sandbox that it was for. Absent if the message named none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<PodOwner>,
    /// After the init message, if a program was prestarted: true if it became the command, false if
    /// the command was started anew. Supervisors of earlier versions have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prestarted: Option<bool>,
    /// State that this run of the container began with, if the Pod has a persistence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restored: Option<KeptState>,
    /// After the init message: random id of the command's processes, drawn when they began anew. It
    /// stays when they go on in another container. Supervisors of earlier versions have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub processes_id: Option<String>,
}

impl From<SupervisorState> for ReadyReport {
    fn from(state: SupervisorState) -> Self {
        Self {
            state,
            detail: None,
            sealing_key: None,
            owner: None,
            prestarted: None,
            restored: None,
            processes_id: None,
        }
    }
}

/// Command state as the supervisor sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum SupervisorState {
    /// Waiting for the init message.
    Dormant,
    /// The command runs and its probe has not passed yet.
    Starting,
    /// The probe has passed.
    Ready,
    /// The command has ended; the container ends next.
    Exited,
}

/// Rejection of a control call.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum ControlError {
    #[error(transparent)]
    Token(#[from] TokenError),
    #[error("the call is for another Pod")]
    OtherPod,
    #[error("the call has expired")]
    Expired,
}

impl ControlMessage {
    /// Message that expires [`VALIDITY_SECONDS`] after `now` (Unix seconds).
    pub fn new(pod_uid: impl Into<String>, now: i64, grant: Grant) -> Self {
        Self {
            pod_uid: pod_uid.into(),
            expires: now + VALIDITY_SECONDS,
            grant,
        }
    }

    /// Signs the message.
    pub fn sign(&self, signer: &Signer) -> Result<String, TokenError> {
        signer.sign(self)
    }

    /// Verifies signature, Pod and expiry, and returns the grant.
    pub fn verify(
        token: &str,
        verifier: &Verifier,
        pod_uid: &str,
        now: i64,
    ) -> Result<Grant, ControlError> {
        let message = Self::recall(token, verifier, pod_uid)?;
        if now > message.expires {
            return Err(ControlError::Expired);
        }
        Ok(message.grant)
    }

    /// As [`ControlMessage::verify`] without the expiry, for a stored message.
    pub fn recall(token: &str, verifier: &Verifier, pod_uid: &str) -> Result<Self, ControlError> {
        let message: Self = verifier.open(token)?;
        if message.pod_uid == pod_uid {
            Ok(message)
        } else {
            Err(ControlError::OtherPod)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_message_is_bound_to_pod_and_expiry() {
        let signer = Signer::from_seed(&[1; 32]).unwrap();
        let verifier = Verifier::new(&signer.public_key()).unwrap();
        let token = ControlMessage::new("pod-a", 1000, Grant::Ready)
            .sign(&signer)
            .unwrap();
        let verify = |pod, now| ControlMessage::verify(&token, &verifier, pod, now);
        assert_eq!(verify("pod-a", 1000 + VALIDITY_SECONDS), Ok(Grant::Ready));
        assert_eq!(
            verify("pod-a", 1001 + VALIDITY_SECONDS),
            Err(ControlError::Expired)
        );
        assert_eq!(verify("pod-b", 1000), Err(ControlError::OtherPod));
    }

    #[test]
    fn control_message_is_stable_on_the_wire() {
        let init = Init {
            command: vec!["/bin/true".into()],
            working_dir: "/workspace".into(),
            environment: BTreeMap::from([("A".into(), "1".into())]),
            probe: Probe {
                port: Some(60000),
                path: Some("/alive".into()),
            },
            sandbox_uid: Some("sandbox".into()),
            state: None,
        };
        let owner = init.owner();
        insta::assert_json_snapshot!("owner", owner);
        let message = ControlMessage::new("uid", 0, Grant::Init(Box::new(init)));
        insta::assert_json_snapshot!(message);
    }
}
