//! Annotations with which Pods tell later controllers what no field of theirs does.

/// Annotation of a replacement Pod: restarts before this Pod, so that the count outlives Pod and
/// controller.
pub const RESTARTS_ANNOTATION: &str = "openhands.dev/restarts";
/// Annotation of a Pod: rotation number of its session key, if not 0.
pub const KEY_ROTATION_ANNOTATION: &str = "openhands.dev/key-rotation";
/// Annotation of a Pod without a supervisor: name of its environment Secret.
pub const ENVIRONMENT_ANNOTATION: &str = "openhands.dev/environment-secret";
/// Annotation of a Pod whose supervisor has an identity key: what the key is derived from.
pub const IDENTITY_ANNOTATION: &str = "openhands.dev/identity";
/// Annotation of a Pod: revision of the spec that it was created from.
pub const SPEC_ANNOTATION: &str = "openhands.dev/spec";
/// Annotation of a Pod that is or was warm: its shape.
pub const SHAPE_ANNOTATION: &str = "openhands.dev/shape";
/// Annotation of a Pod that is or was warm: hash of its shape and of its prestarted program.
pub const REVISION_ANNOTATION: &str = "openhands.dev/revision";
/// Annotation of a Pod that was warm: RFC 3339 time of its claim.
pub const CLAIMED_ANNOTATION: &str = "openhands.dev/claimed-at";
/// Annotation of a Pod that was warm: restarts of its container before the claim.
pub const WARM_RESTARTS_ANNOTATION: &str = "openhands.dev/restarts-before-claim";
/// Annotation of a Pod that was created with other resources than those of its sandbox: these
/// resources, as JSON.
pub const IDLE_RESOURCES_ANNOTATION: &str = "openhands.dev/idle-resources";
/// Annotation of a Pod that was created ahead of a resume: RFC 3339 time of the pause.
pub const PAUSE_ANNOTATION: &str = "openhands.dev/created-in-pause";
/// Annotation of a Pod that mounts the executor image because a probe has shown that this works.
pub const EXECUTOR_ANNOTATION: &str = "openhands.dev/executor";
/// Value of [`EXECUTOR_ANNOTATION`].
pub const IMAGE_VOLUME: &str = "image-volume";
/// Reason of a Pod whose node cannot mount the executor image after all.
pub const NOT_MOUNTED: &str = "ExecutorNotMounted";
/// Annotation of a Pod that deviates from the spec: a note for the owner.
pub const NOTE_ANNOTATION: &str = "openhands.dev/note";
/// Annotation of a Pod that keeps more than the workspace: its [`PodPersistence`] as JSON.
///
/// [`PodPersistence`]: crds::contract::persistence::PodPersistence
pub const PERSISTENCE_ANNOTATION: &str = "openhands.dev/persistence";
/// Annotation of a Pod that begins with a snapshot: the [`SnapshotIdentity`](super::SnapshotIdentity) as
/// JSON.
pub const SNAPSHOT_ANNOTATION: &str = "openhands.dev/snapshot";
/// Annotation of a Pod that keeps less than asked for because policies rejected a Pod that keeps
/// more: the [`RejectedPersistence`] as JSON.
///
/// [`RejectedPersistence`]: crate::RejectedPersistence
pub const REJECTED_PERSISTENCE_ANNOTATION: &str = "openhands.dev/rejected-persistence";
