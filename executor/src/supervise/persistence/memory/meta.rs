//! File `meta.json` beside saved processes: the surroundings in which they can go on. Its bytes are
//! part of the key of the archive, so a changed file opens nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use crds::contract::control::Init;
use ring::{digest, hmac};
use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

/// Version of the layout of `memory` and of the formats of all files in it, but for the cipher,
/// which the archive names. Other versions are not restored, and newer ones not removed.
pub(super) const VERSION: u32 = 1;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct MemoryMeta {
    version: u32,
    /// Digest of the image of the container.
    #[serde(default)]
    image: String,
    /// Version of supervisor and executor.
    #[serde(default)]
    executor: String,
    /// Release of the kernel.
    #[serde(default)]
    kernel: String,
    /// Digest of the features of the CPU.
    #[serde(default)]
    cpu: String,
    /// `CLOCK_MONOTONIC` in seconds. Timers of the processes count on it.
    #[serde(default)]
    uptime: i64,
    /// Keyed digest of the init message.
    #[serde(default)]
    init: String,
    /// Id of the processes. Those of a snapshot have none: each copy gets its own.
    #[serde(default)]
    pub(super) id: String,
    /// Time of the save.
    #[serde(default)]
    time: String,
}

impl MemoryMeta {
    /// Surroundings of this supervisor. `image` is empty if it is unknown, `id` if the processes
    /// have none.
    pub(super) fn of_now(image: &str, init: String, id: String) -> io::Result<Self> {
        let kernel = rustix::system::uname();
        Ok(Self {
            version: VERSION,
            image: image.to_owned(),
            executor: env!("CARGO_PKG_VERSION").to_owned(),
            kernel: kernel.release().to_string_lossy().into_owned(),
            cpu: cpu_features(&fs::read_to_string("/proc/cpuinfo")?),
            uptime: clock_gettime(ClockId::Monotonic).tv_sec,
            init,
            id,
            time: jiff::Timestamp::now().to_string(),
        })
    }

    /// Reason why the saved processes cannot go on in these surroundings.
    pub(super) fn obstacle(&self, now: &Self) -> Option<String> {
        let reason = if self.version != VERSION {
            return Some(format!(
                "they have version {}, which this supervisor does not restore",
                self.version
            ));
        } else if self.image.is_empty() || self.image != now.image {
            "the image has changed"
        } else if self.executor != now.executor {
            "the executor is of another version"
        } else if self.init != now.init {
            "the command or its environment has changed"
        } else if self.kernel != now.kernel {
            "the node has another kernel"
        } else if self.cpu != now.cpu {
            "the CPU of the node has other features"
        } else if self.uptime > now.uptime {
            "the node has run for less time than the one before"
        } else {
            return None;
        };
        Some(reason.to_owned())
    }
}

/// Init message without what differs between the sandboxes of a snapshot.
pub(super) fn without_sandbox(init: &Init) -> Init {
    Init {
        environment: BTreeMap::new(),
        sandbox_uid: None,
        ..init.clone()
    }
}

/// Digest of an init message without its access to the state, keyed as it holds secrets.
pub(super) fn init_digest(init: &Init, key: &[u8; 32]) -> io::Result<String> {
    let message = Init {
        state: None,
        ..init.clone()
    };
    let key = hmac::Key::new(hmac::HMAC_SHA256, key);
    let mut context = hmac::Context::with_key(&key);
    context.update(b"sandbox-memory-init-v1\n");
    context.update(&serde_json::to_vec(&message)?);
    Ok(URL_SAFE_NO_PAD.encode(context.sign()))
}

/// Digest of all features that some CPU of the list has.
fn cpu_features(info: &str) -> String {
    let lists = info.lines().filter_map(|line| {
        let (name, list) = line.split_once(':')?;
        ["flags", "Features"].contains(&name.trim()).then_some(list)
    });
    let features: BTreeSet<&str> = lists.flat_map(str::split_whitespace).collect();
    let features: Vec<&str> = features.into_iter().collect();
    let found = digest::digest(&digest::SHA256, features.join(" ").as_bytes());
    URL_SAFE_NO_PAD.encode(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    type Change = fn(&mut MemoryMeta);

    fn meta() -> MemoryMeta {
        MemoryMeta::of_now("sha256:one", "digest".into(), String::new()).unwrap()
    }

    #[test]
    fn each_difference_of_the_surroundings_is_an_obstacle() {
        let now = meta();
        assert_eq!(now.obstacle(&now), None);
        let later = MemoryMeta {
            uptime: now.uptime + 1,
            time: String::new(),
            ..now.clone()
        };
        assert_eq!(now.obstacle(&later), None);
        let cases: [(&str, Change); 7] = [
            ("version 2", |meta| meta.version = 2),
            ("image", |meta| meta.image = "sha256:two".into()),
            ("image", |meta| meta.image = String::new()),
            ("executor", |meta| meta.executor = "0".into()),
            ("command", |meta| meta.init = "other".into()),
            ("kernel", |meta| meta.kernel = "1".into()),
            ("CPU", |meta| meta.cpu = String::new()),
        ];
        for (part, change) in cases {
            let mut saved = now.clone();
            change(&mut saved);
            let reason = saved.obstacle(&now).unwrap();
            assert!(reason.contains(part), "{reason}");
        }
        assert!(later.obstacle(&now).unwrap().contains("less time"));
    }

    #[test]
    fn cpu_features_are_compared_without_their_order() {
        let digest = cpu_features("processor\t: 0\nflags\t\t: sse avx\nbugs\t: x\n");
        assert_eq!(digest, cpu_features("flags : avx sse\nflags : sse avx\n"));
        assert_ne!(digest, cpu_features("flags : sse\n"));
        assert_ne!(digest, cpu_features("Features : sse\n"));
    }
}
