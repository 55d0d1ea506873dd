//! Generations of a kept root on disk: the current one, and the one before it, which stays until a
//! later Pod has started with the current one.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crds::contract::persistence::KeptState;
use rustix::fs::{CWD, RenameFlags, renameat_with};

use super::record::{Choice, RootImage, RootRecord, StoredRecord, choose, read, state};
use super::{create_private, directory_name};
use crate::node::paths::remove_tree;

/// Directory of a claim's root.
#[derive(Debug, Clone)]
pub(crate) struct KeptGenerations(PathBuf);

/// Generation with which a container starts.
#[derive(Debug, Clone)]
pub(crate) struct GenerationStart {
    /// True if its content has to be created.
    pub is_new: bool,
    /// True if it has run in a Pod before this one, so that the image is not on trial.
    pub is_settled: bool,
    /// True if the container is the first to be told the state.
    pub is_news: bool,
    pub state: KeptState,
    /// Uid of the Pod.
    pod: String,
}

impl KeptGenerations {
    /// Root of a claim, beside the directories of volumes.
    pub(crate) fn new(volumes: &Path, claim: &str) -> Self {
        Self(volumes.join(directory_name(claim)))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    pub(crate) fn current(&self) -> PathBuf {
        self.0.join("current")
    }

    pub(crate) fn previous(&self) -> PathBuf {
        self.0.join("previous")
    }

    /// Makes the generation for a start the current one. With `unusable` it is a new one, for this
    /// reason.
    pub(crate) fn prepare(
        &self,
        image: &RootImage,
        pod: &str,
        unusable: Option<String>,
    ) -> io::Result<GenerationStart> {
        create_private(&self.0)?;
        let (current, previous) = (self.current(), self.previous());
        let pod = pod.to_owned();
        let stored = read(&current)?;
        let choice = match unusable {
            Some(reason) => Choice::New(Some(reason)),
            None => choose(stored.as_ref(), read(&previous)?.as_ref(), image, &pod),
        };
        match choice {
            Choice::Current(is_other_pod) => {
                let untold = self.untold()?;
                Ok(GenerationStart {
                    pod,
                    is_new: false,
                    is_settled: is_other_pod && untold.is_none(),
                    is_news: untold.is_some(),
                    state: untold.unwrap_or(state(true, None)),
                })
            }
            Choice::Previous => {
                restore(&current, &previous, stored.is_some())?;
                let reason = "the image is an earlier one again, with its files of that time";
                let state = state(true, Some(reason.to_owned()));
                self.change(|record| record.untold = Some(state.clone()))?;
                Ok(GenerationStart {
                    pod,
                    is_new: false,
                    is_settled: false,
                    is_news: true,
                    state,
                })
            }
            Choice::New(reason) => {
                if stored.is_some() {
                    remove_tree(&previous);
                    fs::rename(&current, &previous)?;
                } else {
                    remove_tree(&current);
                }
                create_private(&current)?;
                Ok(GenerationStart {
                    pod,
                    is_new: true,
                    is_settled: false,
                    is_news: true,
                    state: state(false, reason),
                })
            }
        }
    }

    /// Completes a new generation, whose content takes `image_bytes`.
    pub(crate) fn complete(
        &self,
        image: RootImage,
        pod: &str,
        image_bytes: u64,
        untold: KeptState,
    ) -> io::Result<()> {
        RootRecord::new(image, pod, image_bytes, untold).write(&self.current())
    }

    /// Records that a container has been told the state.
    pub(crate) fn record_start(&self, start: &GenerationStart) -> io::Result<()> {
        if start.is_news {
            self.change(|record| {
                record.untold = None;
                record.pod.clone_from(&start.pod);
            })?;
        }
        Ok(())
    }

    fn untold(&self) -> io::Result<Option<KeptState>> {
        Ok(match read(&self.current())? {
            Some(StoredRecord::Known(record)) => record.untold,
            _ => None,
        })
    }

    fn change(&self, change: impl FnOnce(&mut RootRecord)) -> io::Result<()> {
        if let Some(StoredRecord::Known(mut record)) = read(&self.current())? {
            change(&mut record);
            record.write(&self.current())?;
        }
        Ok(())
    }
}

fn restore(current: &Path, previous: &Path, has_current: bool) -> io::Result<()> {
    if has_current {
        return Ok(renameat_with(
            CWD,
            current,
            CWD,
            previous,
            RenameFlags::EXCHANGE,
        )?);
    }
    remove_tree(current);
    fs::rename(previous, current)
}

/// Bytes of changes in the root of a claim, of which `usage` measures directories.
pub(crate) fn recorded_bytes(
    volumes: &Path,
    claim: &str,
    usage: impl Fn(&Path) -> u64,
) -> Option<u64> {
    let generations = KeptGenerations::new(volumes, claim);
    let bytes = |generation: PathBuf| match read(&generation) {
        Ok(Some(StoredRecord::Known(record))) => {
            usage(&generation).saturating_sub(record.image_bytes)
        }
        // The node copies an image, or a node of another version did: no program can write there.
        _ => 0,
    };
    let exists = fs::symlink_metadata(generations.path()).is_ok();
    exists.then(|| bytes(generations.current()).saturating_add(bytes(generations.previous())))
}

#[cfg(test)]
mod tests {
    use super::super::record::RECORD;
    use super::*;
    use crds::contract::persistence::PersistenceLevel::{self, Root, Workspace};

    struct Fixture {
        _volumes: tempfile::TempDir,
        generations: KeptGenerations,
    }

    fn fixture() -> Fixture {
        let volumes = tempfile::tempdir().unwrap();
        let generations = KeptGenerations::new(volumes.path(), "claim");
        Fixture {
            _volumes: volumes,
            generations,
        }
    }

    impl Fixture {
        /// Starts a Pod with an image, which leaves its name in the root. Returns the level, the
        /// names of all Pods in the root, and whether the start was settled.
        fn start(&self, image: &str, pod: &str) -> (PersistenceLevel, String, bool) {
            self.start_with(image, pod, None)
        }

        fn start_with(
            &self,
            image: &str,
            pod: &str,
            unusable: Option<&str>,
        ) -> (PersistenceLevel, String, bool) {
            let start = self.fail(image, pod, unusable);
            let file = self.generations.current().join("pods");
            let pods = fs::read_to_string(&file).unwrap_or_default() + pod;
            fs::write(file, &pods).unwrap();
            self.generations.record_start(&start).unwrap();
            if start.is_settled {
                remove_tree(&self.generations.previous());
            }
            (start.state.level, pods, start.is_settled)
        }
    }

    #[test]
    fn root_of_an_image_comes_back_until_a_later_pod_has_started_with_another() {
        let root = fixture();
        assert_eq!(root.start("a", "1"), (Workspace, "1".into(), false));
        assert_eq!(root.start("a", "1"), (Root, "11".into(), false));
        assert_eq!(root.start("a", "2"), (Root, "112".into(), true));
        assert_eq!(root.start("b", "3"), (Workspace, "3".into(), false));
        assert_eq!(root.start("b", "3"), (Root, "33".into(), false));
        assert_eq!(root.start("a", "4"), (Root, "1124".into(), false));
        assert_eq!(root.start("b", "5"), (Root, "335".into(), false));
        assert_eq!(root.start("b", "6"), (Root, "3356".into(), true));
        assert_eq!(root.start("a", "7"), (Workspace, "7".into(), false));
    }

    impl Fixture {
        /// Prepares a start that fails afterwards.
        fn fail(&self, image: &str, pod: &str, unusable: Option<&str>) -> GenerationStart {
            let image = RootImage {
                id: image.into(),
                name: image.into(),
                owner: 0,
            };
            let unusable = unusable.map(str::to_owned);
            let start = self.generations.prepare(&image, pod, unusable).unwrap();
            if start.is_new {
                let state = start.state.clone();
                self.generations.complete(image, pod, 0, state).unwrap();
            }
            start
        }
    }

    #[test]
    fn state_is_told_again_after_a_failed_start() {
        let root = fixture();
        root.fail("a", "1", None);
        assert_eq!(root.start("a", "2"), (Workspace, "2".into(), false));
        assert_eq!(root.start("a", "2"), (Root, "22".into(), false));
        for (image, level) in [("b", Workspace), ("a", Root)] {
            let told = root.fail(image, "3", None).state;
            assert_eq!(told.level, level);
            assert!(told.reason.is_some());
            for pod in ["3", "4"] {
                assert_eq!(root.fail(image, pod, None).state, told, "{image}");
            }
        }
        assert_eq!(root.start("a", "5").0, Root);
        assert!(root.generations.previous().exists(), "it has not run");
        assert_eq!(root.start("a", "6"), (Root, "2256".into(), true));
    }

    #[test]
    fn unusable_root_is_moved_aside() {
        let root = fixture();
        root.start("a", "1");
        let begun = root.start_with("a", "2", Some("/opt has a file in its way"));
        assert_eq!(begun, (Workspace, "2".into(), false));
        assert_eq!(
            fs::read(root.generations.previous().join("pods")).unwrap(),
            b"1"
        );
    }

    #[test]
    fn incomplete_generation_is_removed() {
        let root = fixture();
        let current = root.generations.current();
        fs::create_dir_all(current.join("half")).unwrap();
        assert_eq!(root.start("a", "1"), (Workspace, "1".into(), false));
        assert!(!current.join("half").exists());
        assert!(!root.generations.previous().exists());
    }

    #[test]
    fn bytes_of_the_image_are_no_changes() {
        let root = fixture();
        let volumes = root.generations.path().parent().unwrap().to_owned();
        assert_eq!(recorded_bytes(&volumes, "claim", |_| 10), None);
        root.start("a", "1");
        let image = RootImage {
            id: "a".into(),
            name: "a".into(),
            owner: 0,
        };
        let state = state(false, None);
        root.generations.complete(image, "1", 8, state).unwrap();
        let usage = |path: &Path| if path.exists() { 10 } else { 0 };
        assert_eq!(recorded_bytes(&volumes, "claim", usage), Some(2));
        fs::remove_file(root.generations.current().join(RECORD)).unwrap();
        assert_eq!(recorded_bytes(&volumes, "claim", usage), Some(0));
    }
}
