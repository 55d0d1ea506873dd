//! Record of a generation of a kept root: which image its changes belong to. Decides which
//! generation a start uses.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::Path;

use crds::contract::persistence::{KeptState, MAX_REASON_BYTES, PersistenceLevel};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// Version of the layout below a generation.
const FORMAT: u32 = 1;

/// Name of the file in a generation. It is written last: without it, a generation is incomplete.
pub(super) const RECORD: &str = "record.json";

/// Bytes of a name in a reason.
const MAX_NAME: usize = 120;

/// Image of a start, and ids that files on disk have.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct RootImage {
    /// Changes with the same value fit.
    pub id: String,
    /// Reference, for people.
    pub name: String,
    /// Owner on disk of what root of the container owns.
    pub owner: u32,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct RootRecord {
    pub version: u32,
    #[serde(flatten)]
    pub image: RootImage,
    /// Uid of the first Pod that has run with the generation since it became the current one.
    pub pod: String,
    /// Bytes of the image in the generation, which are no changes.
    pub image_bytes: u64,
    pub at: Timestamp,
    /// State that no container has been told yet, because none has started since.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub untold: Option<KeptState>,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum StoredRecord {
    Known(RootRecord),
    /// Of a newer version.
    Newer(u32),
    Damaged,
}

#[derive(Deserialize)]
struct Version {
    version: u32,
}

impl RootRecord {
    pub(super) fn new(image: RootImage, pod: &str, image_bytes: u64, untold: KeptState) -> Self {
        Self {
            version: FORMAT,
            image,
            pod: pod.to_owned(),
            image_bytes,
            at: Timestamp::now(),
            untold: Some(untold),
        }
    }

    pub(super) fn write(&self, generation: &Path) -> io::Result<()> {
        let text = serde_json::to_vec(self)?;
        let draft = generation.join("record.new");
        let mut file = File::create(&draft)?;
        file.write_all(&text)?;
        file.sync_all()?;
        fs::rename(&draft, generation.join(RECORD))?;
        File::open(generation)?.sync_all()
    }
}

/// Record of a generation; `None` without a complete one.
pub(super) fn read(generation: &Path) -> io::Result<Option<StoredRecord>> {
    match fs::read(generation.join(RECORD)) {
        Ok(text) => Ok(Some(parse(&text))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

fn parse(text: &[u8]) -> StoredRecord {
    let version = serde_json::from_slice(text).map(|found: Version| found.version);
    if let Ok(version) = version
        && version > FORMAT
    {
        return StoredRecord::Newer(version);
    }
    serde_json::from_slice(text).map_or(StoredRecord::Damaged, StoredRecord::Known)
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Choice {
    /// The current generation; true if another Pod was the first to run with it.
    Current(bool),
    /// The generation before becomes the current one.
    Previous,
    /// A new one. Without a reason there was none.
    New(Option<String>),
}

/// Chooses the generation for a start of `image` by the Pod `pod`.
pub(super) fn choose(
    current: Option<&StoredRecord>,
    previous: Option<&StoredRecord>,
    image: &RootImage,
    pod: &str,
) -> Choice {
    let fits = |stored: &StoredRecord| match stored {
        StoredRecord::Known(known) => {
            known.image.id == image.id && known.image.owner == image.owner
        }
        StoredRecord::Newer(_) | StoredRecord::Damaged => false,
    };
    match (current, previous) {
        (Some(StoredRecord::Known(known)), _) if fits(&StoredRecord::Known(known.clone())) => {
            Choice::Current(known.pod != pod)
        }
        (_, Some(previous)) if fits(previous) => Choice::Previous,
        (current, _) => Choice::New(current.map(|current| misfit(current, image))),
    }
}

fn misfit(current: &StoredRecord, image: &RootImage) -> String {
    const NEW: &str = "files outside the workspace are those of the new image";
    let before = match current {
        StoredRecord::Newer(version) => {
            return format!("the kept root has format {version}, and this node knows {FORMAT}");
        }
        StoredRecord::Damaged => return "the record of the kept root is damaged".to_owned(),
        StoredRecord::Known(known) => &known.image,
    };
    if before.id == image.id {
        return "files of the kept root have ids of another user namespace".to_owned();
    }
    let (from, to) = if before.name == image.name {
        (&before.id, &image.id)
    } else {
        (&before.name, &image.name)
    };
    let (from, to) = (shortened(from), shortened(to));
    format!("the image has changed from {from} to {to}: {NEW}")
}

fn shortened(name: &str) -> &str {
    &name[..name.floor_char_boundary(MAX_NAME)]
}

/// State that the container is told: a kept root was used, or why not.
pub(super) fn state(is_kept: bool, reason: Option<String>) -> KeptState {
    let level = if is_kept {
        PersistenceLevel::Root
    } else {
        PersistenceLevel::Workspace
    };
    let mut state = KeptState::of(level);
    state.reason = reason.map(|mut reason| {
        reason.truncate(reason.floor_char_boundary(MAX_REASON_BYTES));
        reason
    });
    state
}

#[cfg(test)]
mod tests {
    use super::*;

    fn image(id: &str) -> RootImage {
        RootImage {
            id: id.into(),
            name: format!("app:{id}"),
            owner: 7,
        }
    }

    fn known(id: &str) -> StoredRecord {
        StoredRecord::Known(RootRecord::new(image(id), "first", 0, state(false, None)))
    }

    #[test]
    fn generation_with_the_same_image_is_used() {
        let (a, b) = (known("a"), known("b"));
        let chosen = |current, previous, pod| choose(current, previous, &image("a"), pod);
        assert_eq!(chosen(None, None, "first"), Choice::New(None));
        assert_eq!(chosen(Some(&a), None, "first"), Choice::Current(false));
        assert_eq!(chosen(Some(&a), Some(&a), "second"), Choice::Current(true));
        assert_eq!(chosen(Some(&b), Some(&a), "third"), Choice::Previous);
        assert_eq!(chosen(None, Some(&a), "third"), Choice::Previous);
        let damaged = StoredRecord::Damaged;
        assert_eq!(chosen(Some(&damaged), Some(&a), "x"), Choice::Previous);
    }

    #[test]
    fn reason_says_why_the_root_begins_anew() {
        let reason = |current: &StoredRecord, wanted: &RootImage| {
            let Choice::New(Some(reason)) = choose(Some(current), None, wanted, "pod") else {
                panic!("used");
            };
            reason
        };
        let end = "files outside the workspace are those of the new image";
        let moved_tag = RootImage {
            name: "app:b".into(),
            ..image("a")
        };
        let other_ids = RootImage {
            owner: 8,
            ..image("a")
        };
        for (current, wanted, expected) in [
            (
                known("b"),
                image("a"),
                format!("the image has changed from app:b to app:a: {end}"),
            ),
            (
                known("b"),
                moved_tag,
                format!("the image has changed from b to a: {end}"),
            ),
            (
                known("a"),
                other_ids,
                "files of the kept root have ids of another user namespace".into(),
            ),
            (
                StoredRecord::Newer(9),
                image("a"),
                "the kept root has format 9, and this node knows 1".into(),
            ),
            (
                StoredRecord::Damaged,
                image("a"),
                "the record of the kept root is damaged".into(),
            ),
        ] {
            assert_eq!(reason(&current, &wanted), expected);
        }
    }

    #[test]
    fn record_is_read_as_it_was_written() {
        let generation = tempfile::tempdir().unwrap();
        assert_eq!(read(generation.path()).unwrap(), None);
        let record = RootRecord::new(image("a"), "pod", 3, state(false, None));
        record.write(generation.path()).unwrap();
        let stored = read(generation.path()).unwrap();
        assert_eq!(stored, Some(StoredRecord::Known(record)));
        for (text, expected) in [
            (r#"{"version": 2, "odd": 1}"#, StoredRecord::Newer(2)),
            (r#"{"version": 1}"#, StoredRecord::Damaged),
            ("", StoredRecord::Damaged),
        ] {
            assert_eq!(parse(text.as_bytes()), expected, "{text}");
        }
    }

    #[test]
    fn reason_has_a_limit() {
        let state = state(false, Some("\u{fc}".repeat(1000)));
        assert_eq!(state.level, PersistenceLevel::Workspace);
        assert_eq!(state.reason.unwrap().len(), MAX_REASON_BYTES);
    }
}
