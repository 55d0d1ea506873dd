//! The control calls themselves: what the controller may ask of a supervisor, and its answers.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::token::{Signer, TokenError, Verifier};

/// Seconds for which a control call is valid after it was signed.
pub const VALIDITY_SECONDS: i64 = 120;

/// Longest wait that `/v1/ready` grants, in seconds.
pub const MAX_READY_WAIT_SECONDS: u64 = 60;

/// A grant, bound to one Pod and to a moment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Claim {
    /// Uid of the Pod that the call is for.
    pub pod_uid: String,
    /// Unix time in seconds after which the call is void.
    pub expires: i64,
    pub grant: Grant,
}

/// What the controller asks for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Grant {
    /// Start this command. Valid once per Pod; repeating the same message is harmless.
    Init(Box<Init>),
    /// Tell whether the command is ready.
    Ready,
}

/// Everything that turns a dormant Pod into somebody's sandbox.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Init {
    /// Program and arguments; the program is looked up on the `PATH` of the result.
    pub command: Vec<String>,
    /// Absolute directory to start in; made if it is missing.
    pub working_dir: String,
    /// Laid over the container's own environment (that of the image and of the Pod).
    pub environment: BTreeMap<String, String>,
    pub probe: Probe,
}

/// When the command counts as ready.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Probe {
    /// Port that must accept connections. Absent: ready as soon as the command runs.
    pub port: Option<u16>,
    /// Path on that port that must answer 2xx, for example `/alive`. Absent: accepting is enough.
    pub path: Option<String>,
}

/// Answer of `/v1/ready`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ReadyReport {
    pub state: SupervisorState,
    /// For people: why it is not ready.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
}

/// The supervisor's own view of its command.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum SupervisorState {
    /// Waiting for its initialisation.
    Dormant,
    /// The command runs and its probe has not passed yet.
    Starting,
    /// The probe has passed.
    Ready,
    /// The command has ended; the container is about to.
    Exited,
}

/// Why a control call was refused.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum ControlError {
    #[error(transparent)]
    Token(#[from] TokenError),
    #[error("the call is for another Pod")]
    OtherPod,
    #[error("the call has expired")]
    Expired,
}

impl Claim {
    /// A call that is valid from `now` (Unix seconds) for [`VALIDITY_SECONDS`].
    pub fn new(pod_uid: impl Into<String>, now: i64, grant: Grant) -> Self {
        Self {
            pod_uid: pod_uid.into(),
            expires: now + VALIDITY_SECONDS,
            grant,
        }
    }

    /// Signs the call.
    pub fn sign(&self, signer: &Signer) -> Result<String, TokenError> {
        signer.sign(self)
    }

    /// Reads a call and checks that it is authentic, for this Pod and still valid at `now`.
    pub fn verify(
        token: &str,
        verifier: &Verifier,
        pod_uid: &str,
        now: i64,
    ) -> Result<Grant, ControlError> {
        let claim = Self::recall(token, verifier, pod_uid)?;
        if now > claim.expires {
            return Err(ControlError::Expired);
        }
        Ok(claim.grant)
    }

    /// As [`Claim::verify`] without the clock: for a call that was accepted before and kept.
    pub fn recall(token: &str, verifier: &Verifier, pod_uid: &str) -> Result<Self, ControlError> {
        let claim: Self = verifier.open(token)?;
        if claim.pod_uid == pod_uid {
            Ok(claim)
        } else {
            Err(ControlError::OtherPod)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_is_bound_to_pod_and_time() {
        let signer = Signer::from_seed(&[1; 32]).unwrap();
        let verifier = Verifier::new(&signer.public_key()).unwrap();
        let token = Claim::new("pod-a", 1000, Grant::Ready)
            .sign(&signer)
            .unwrap();
        let verify = |pod, now| Claim::verify(&token, &verifier, pod, now);
        assert_eq!(verify("pod-a", 1000 + VALIDITY_SECONDS), Ok(Grant::Ready));
        assert_eq!(
            verify("pod-a", 1001 + VALIDITY_SECONDS),
            Err(ControlError::Expired)
        );
        assert_eq!(verify("pod-b", 1000), Err(ControlError::OtherPod));
    }

    #[test]
    fn the_message_is_stable_on_the_wire() {
        let init = Init {
            command: vec!["/bin/true".into()],
            working_dir: "/workspace".into(),
            environment: BTreeMap::from([("A".into(), "1".into())]),
            probe: Probe {
                port: Some(60000),
                path: Some("/alive".into()),
            },
        };
        let claim = Claim::new("uid", 0, Grant::Init(Box::new(init)));
        insta::assert_json_snapshot!(claim);
    }
}
