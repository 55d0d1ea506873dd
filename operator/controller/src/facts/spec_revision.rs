//! Revision of the spec that a Pod was created from. A later spec that would make another Pod does
//! not reach the running one, and the status has to say so.

use std::fmt;

use crds::sandbox::{DesiredState, SandboxSpec};
use ring::digest::{SHA256, digest};

/// Generation of a Sandbox with a hash of the fields that shape its Pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SpecRevision {
    generation: i64,
    hash: u64,
}

impl SpecRevision {
    pub fn new(generation: i64, spec: &SandboxSpec) -> Self {
        Self {
            generation,
            hash: hash(spec),
        }
    }

    /// Reads the annotation of a Pod.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let (generation, hash) = text.split_once('-')?;
        Some(Self {
            generation: generation.parse().ok()?,
            hash: u64::from_str_radix(hash, 16).ok()?,
        })
    }

    /// Returns whether a Pod of this spec would differ. The hash is only calculated for another
    /// generation, because a spec can be large.
    pub fn differs_from(&self, generation: i64, spec: &SandboxSpec) -> bool {
        self.generation != generation && self.hash != hash(spec)
    }
}

impl fmt::Display for SpecRevision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{:016x}", self.generation, self.hash)
    }
}

/// Hash without the fields that take effect on a running sandbox, or that `keyRotation` reports.
fn hash(spec: &SandboxSpec) -> u64 {
    let shape = SandboxSpec {
        state: DesiredState::Running,
        lifecycle: None,
        ports: Vec::new(),
        pool: None,
        session: None,
        key_rotation: None,
        ..spec.clone()
    };
    // A spec that came from the API server has a JSON form.
    let text = serde_json::to_vec(&shape).unwrap_or_default();
    let first = digest(&SHA256, &text).as_ref().first_chunk().copied();
    u64::from_be_bytes(first.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn revision_differs_only_for_fields_that_shape_the_pod() {
        let image = |image: &str| SandboxSpec {
            image: Some(image.into()),
            ..SandboxSpec::default()
        };
        let made = SpecRevision::new(3, &image("a"));
        assert_eq!(SpecRevision::parse(&made.to_string()).as_ref(), Some(&made));
        assert!(made.differs_from(4, &image("b")));
        assert!(
            !made.differs_from(3, &image("b")),
            "pools change at the same generation"
        );
        let paused = SandboxSpec {
            state: DesiredState::Paused,
            key_rotation: Some(1),
            ..image("a")
        };
        assert!(!made.differs_from(5, &paused));
        for malformed in ["", "3", "x-0", "3-g"] {
            assert_eq!(SpecRevision::parse(malformed), None, "{malformed}");
        }
    }
}
