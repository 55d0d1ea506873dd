//! Save and restore over real directories, and archives that were not made by a save.

use std::fs::{self, File, Permissions};
use std::io::Write as _;
use std::os::unix::fs::{FileExt as _, MetadataExt as _, PermissionsExt as _, chown, symlink};
use std::path::{Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use rustix::fs::{CWD, FileType, XattrFlags, mknodat};
use tempfile::TempDir;

use super::entry::{Entry, Kind};
use super::metadata::Metadata;
use super::tar_writer::TarWriter;
use super::*;

const LIMITS: SaveLimits = SaveLimits {
    bytes: 1 << 30,
    files: 10_000,
    seconds: 60,
};

/// Root with a store of its own.
struct Fixture {
    directory: TempDir,
}

impl Fixture {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        for name in ["store", "root/etc", "root/usr/lib"] {
            fs::create_dir_all(directory.path().join(name)).unwrap();
        }
        let fixture = Self { directory };
        fixture.image();
        fixture
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join("root").join(name)
    }

    fn stored(&self, name: &str) -> PathBuf {
        self.directory.path().join("store/root").join(name)
    }

    /// Files of the image, in an empty root.
    fn image(&self) {
        for (name, content) in [
            ("etc/passwd", "root"),
            ("usr/lib/a", "a"),
            ("usr/lib/b", "b"),
        ] {
            fs::create_dir_all(self.path(name).parent().unwrap()).unwrap();
            fs::write(self.path(name), content).unwrap();
        }
    }

    /// A root as the image has it.
    fn renew(&self) {
        let root = self.directory.path().join("root");
        fs::remove_dir_all(&root).unwrap();
        fs::create_dir(&root).unwrap();
        self.image();
    }

    fn start(&self) -> ArchiveRoot {
        let store = Store::open(&self.directory.path().join("store")).unwrap();
        ArchiveRoot::prepare(store, &self.directory.path().join("root"), &[]).unwrap()
    }

    /// Saves `change`, and makes the root that of the image.
    fn saved(change: impl FnOnce(&Self)) -> Self {
        let fixture = Self::new();
        let root = fixture.start();
        change(&fixture);
        root.save(&access(), LIMITS).unwrap();
        fixture.renew();
        fixture
    }
}

fn access() -> StateAccess {
    StateAccess {
        key: URL_SAFE_NO_PAD.encode([1; 32]),
        image: "sha256:one".into(),
        source: None,
    }
}

fn is_root(test: &str) -> bool {
    let is_root = rustix::process::geteuid().is_root();
    if !is_root {
        eprintln!("SKIPPED {test}: needs root");
    }
    is_root
}

fn mode(path: impl AsRef<Path>) -> u32 {
    fs::symlink_metadata(path).unwrap().mode() & 0o7777
}

#[test]
fn all_kinds_of_files_come_back() {
    if !is_root("all_kinds_of_files_come_back") {
        return;
    }
    let capability = b"\x01\0\0\x02\0\x04\0\0\0\0\0\0\0\0\0\0\0\0\0\0";
    let long = format!("{}/{}", "d".repeat(120), "\u{fc}\n".repeat(30));
    let old = UNIX_EPOCH + Duration::new(1_000_000_000, 7);
    let fixture = Fixture::saved(|at| {
        fs::write(at.path("etc/passwd"), "root agent").unwrap();
        fs::remove_file(at.path("usr/lib/a")).unwrap();
        fs::create_dir_all(at.path("home/agent/deep")).unwrap();
        chown(at.path("home/agent"), Some(1000), Some(3_000_000)).unwrap();
        fs::set_permissions(at.path("home/agent"), Permissions::from_mode(0o1770)).unwrap();
        let tool = at.path("home/agent/tool");
        fs::write(&tool, "tool").unwrap();
        chown(&tool, Some(1000), Some(1000)).unwrap();
        fs::set_permissions(&tool, Permissions::from_mode(0o4755)).unwrap();
        File::open(&tool).unwrap().set_modified(old).unwrap();
        fs::hard_link(&tool, at.path("home/agent/deep/same")).unwrap();
        symlink("/etc/passwd", at.path("home/link")).unwrap();
        mknodat(CWD, at.path("home/pipe"), FileType::Fifo, 0o640.into(), 0).unwrap();
        fs::create_dir(at.path(&"d".repeat(120))).unwrap();
        fs::write(at.path(&long), "long").unwrap();
        for (name, value) in [
            ("user.note", &b"a\nb"[..]),
            ("security.capability", capability),
        ] {
            let set = rustix::fs::setxattr(at.path("usr/lib/b"), name, value, XattrFlags::empty());
            set.unwrap();
        }
        let sparse = File::create(at.path("sparse")).unwrap();
        sparse.write_at(b"end", 64 << 20).unwrap();
        sparse.set_len(100 << 20).unwrap();
        fs::write(at.path(".wh.odd"), "").unwrap();
    });
    assert!(fs::metadata(fixture.stored("archive")).unwrap().len() < 2 << 20);
    let kept = fixture.start().restore(&access(), LIMITS);
    assert_eq!((kept.level, kept.reason), (PersistenceLevel::Root, None));
    let read = |name: &str| fs::read_to_string(fixture.path(name)).unwrap();
    assert_eq!(read("etc/passwd"), "root agent");
    assert!(!fixture.path("usr/lib/a").exists());
    assert_eq!(mode(fixture.path("home/agent")), 0o1770);
    let agent = fs::metadata(fixture.path("home/agent")).unwrap();
    assert_eq!((agent.uid(), agent.gid()), (1000, 3_000_000));
    let tool = fs::metadata(fixture.path("home/agent/tool")).unwrap();
    assert_eq!(
        (mode(fixture.path("home/agent/tool")), tool.uid()),
        (0o4755, 1000)
    );
    assert_eq!(tool.modified().unwrap(), old);
    let same = fs::metadata(fixture.path("home/agent/deep/same")).unwrap();
    assert_eq!((same.ino(), tool.nlink()), (tool.ino(), 2));
    assert_eq!(
        fs::read_link(fixture.path("home/link")).unwrap(),
        Path::new("/etc/passwd")
    );
    let pipe = fs::symlink_metadata(fixture.path("home/pipe")).unwrap();
    assert_eq!(pipe.mode(), 0o010_640);
    assert_eq!(read(&long), "long");
    let mut value = [0; 64];
    for (name, expected) in [
        ("user.note", &b"a\nb"[..]),
        ("security.capability", capability),
    ] {
        let length = rustix::fs::getxattr(fixture.path("usr/lib/b"), name, &mut value).unwrap();
        assert_eq!(&value[..length], expected, "{name}");
    }
    let sparse = fs::metadata(fixture.path("sparse")).unwrap();
    assert_eq!(sparse.len(), 100 << 20);
    assert!(
        sparse.blocks() * 512 < 1 << 20,
        "{} blocks",
        sparse.blocks()
    );
    let mut end = [0; 4];
    let sparse = File::open(fixture.path("sparse")).unwrap();
    sparse.read_exact_at(&mut end, (64 << 20) - 1).unwrap();
    assert_eq!(end, *b"\0end");
    assert!(!fixture.path(".wh.odd").exists());
}

#[test]
fn second_save_keeps_what_the_first_one_restored() {
    let fixture = Fixture::saved(|at| fs::write(at.path("first"), "1").unwrap());
    let root = fixture.start();
    root.restore(&access(), LIMITS);
    fs::write(fixture.path("second"), "2").unwrap();
    fs::remove_dir_all(fixture.path("usr")).unwrap();
    fs::write(fixture.path("usr"), "now a file").unwrap();
    root.save(&access(), LIMITS).unwrap();
    fixture.renew();
    let kept = fixture.start().restore(&access(), LIMITS);
    assert_eq!(kept.level, PersistenceLevel::Root);
    for (name, content) in [("first", "1"), ("second", "2"), ("usr", "now a file")] {
        assert_eq!(fs::read_to_string(fixture.path(name)).unwrap(), content);
    }
}

#[test]
fn unchanged_root_makes_an_empty_archive() {
    let fixture = Fixture::new();
    let root = fixture.start();
    root.save(&access(), LIMITS).unwrap();
    assert!(fs::metadata(fixture.stored("archive")).unwrap().len() < 2048);
    assert!(!fixture.stored("list").exists());
}

#[test]
fn changed_archive_is_refused_and_kept() {
    type Change = fn(&mut Vec<u8>);
    let changes: [(&str, Change); 5] = [
        ("header", |archive| archive[20] ^= 1),
        ("content", |archive| *archive.last_mut().unwrap() ^= 1),
        ("truncation", |archive| {
            archive.truncate(archive.len() - 600);
        }),
        ("extension", |archive| archive.push(0)),
        ("emptied", Vec::clear),
    ];
    for (name, change) in changes {
        let fixture = Fixture::saved(|at| fs::write(at.path("new"), "x").unwrap());
        let mut archive = fs::read(fixture.stored("archive")).unwrap();
        change(&mut archive);
        fs::write(fixture.stored("archive"), archive).unwrap();
        let kept = fixture.start().restore(&access(), LIMITS);
        assert_eq!(kept.level, PersistenceLevel::Workspace, "{name}");
        assert!(kept.reason.is_some(), "{name}");
        assert!(!fixture.path("new").exists(), "{name}");
        let is_aside = ["archive.refused", "archive.previous"];
        assert!(
            is_aside.iter().any(|name| fixture.stored(name).exists()),
            "{name}"
        );
        assert!(!fixture.stored("archive").exists(), "{name}");
    }
    let fixture = Fixture::saved(|at| fs::write(at.path("new"), "x").unwrap());
    let other = StateAccess {
        key: URL_SAFE_NO_PAD.encode([2; 32]),
        ..access()
    };
    let kept = fixture.start().restore(&other, LIMITS);
    assert!(kept.reason.unwrap().contains("another key"));
    assert!(fixture.stored("archive.refused").exists());
}

#[test]
fn archive_of_another_image_is_set_aside_until_the_next_save() {
    let fixture = Fixture::saved(|at| fs::write(at.path("new"), "x").unwrap());
    let other = StateAccess {
        image: "sha256:two".into(),
        ..access()
    };
    let kept = fixture.start().restore(&other, LIMITS);
    let reason = "the image has changed from sha256:one to sha256:two: files outside of the \
                  workspace are those of the new image";
    assert_eq!(kept.reason.unwrap(), reason);
    assert!(!fixture.path("new").exists());
    // A wrong digest was corrected.
    let kept = fixture.start().restore(&access(), LIMITS);
    assert_eq!(kept.level, PersistenceLevel::Root);
    assert!(fixture.path("new").exists());
    fixture.renew();
    let root = fixture.start();
    root.restore(&other, LIMITS);
    root.save(&other, LIMITS).unwrap();
    assert!(!fixture.stored("archive.previous").exists());
    // Without an image nothing fits.
    let unknown = StateAccess {
        image: String::new(),
        ..access()
    };
    let kept = fixture.start().restore(&unknown, LIMITS);
    assert!(kept.reason.unwrap().contains("an unknown image"));
}

/// Changes the version of a stored archive.
fn renumber(fixture: &Fixture, name: &str, version: u8) {
    let mut archive = fs::read(fixture.stored(name)).unwrap();
    archive[11] = version;
    fs::write(fixture.stored(name), archive).unwrap();
}

#[test]
fn newer_format_is_set_aside_and_used_again_unless_a_save_was_made() {
    let restore = |fixture: &Fixture| {
        let root = fixture.start();
        let kept = root.restore(&access(), LIMITS);
        (root, kept)
    };
    let fixture = Fixture::saved(|at| fs::write(at.path("first"), "1").unwrap());
    renumber(&fixture, "archive", 2);
    let (_, kept) = restore(&fixture);
    let reason = "the saved state has version 2, which this supervisor does not read: it is set \
                  aside for a newer one, and files outside of the workspace are those of the image";
    assert_eq!(kept.reason.unwrap(), reason);
    assert!(fixture.stored("archive.newer").exists() && !fixture.path("first").exists());
    // A supervisor that knows the format.
    renumber(&fixture, "archive.newer", 1);
    let (_, kept) = restore(&fixture);
    assert_eq!((kept.level, kept.reason), (PersistenceLevel::Root, None));
    assert!(fixture.path("first").exists() && !fixture.stored("archive.newer").exists());

    // After a save it stays set aside.
    fixture.renew();
    renumber(&fixture, "archive", 2);
    let (root, _) = restore(&fixture);
    fs::write(fixture.path("second"), "2").unwrap();
    root.save(&access(), LIMITS).unwrap();
    assert!(fixture.stored("archive.newer").exists());
    renumber(&fixture, "archive.newer", 1);
    fixture.renew();
    let (root, kept) = restore(&fixture);
    assert_eq!((kept.level, kept.reason), (PersistenceLevel::Root, None));
    assert!(fixture.path("second").exists() && !fixture.path("first").exists());
    root.save(&access(), LIMITS).unwrap();
    assert!(fixture.stored("archive.newer").exists());
    // So it does if that save was for another image.
    let other = StateAccess {
        image: "sha256:two".into(),
        ..access()
    };
    fixture.start().restore(&other, LIMITS);
    assert!(fixture.stored("archive.previous").exists());
    fixture.start().restore(&other, LIMITS);
    assert!(fixture.stored("archive.newer").exists());
    // One of another image is not removed either, and takes its place.
    renumber(&fixture, "archive.previous", 3);
    let root = fixture.start();
    assert!(root.restore(&other, LIMITS).reason.is_some());
    root.save(&other, LIMITS).unwrap();
    let newer = fs::read(fixture.stored("archive.newer")).unwrap();
    assert_eq!(newer[11], 3);
    assert!(!fixture.stored("archive.previous").exists());
}

#[test]
fn save_beyond_a_limit_leaves_the_earlier_archive() {
    let fixture = Fixture::saved(|at| fs::write(at.path("first"), "1").unwrap());
    let root = fixture.start();
    root.restore(&access(), LIMITS);
    let earlier = fs::read(fixture.stored("archive")).unwrap();
    for at in 0..20 {
        fs::write(fixture.path(&format!("file-{at}")), vec![0; 5000]).unwrap();
    }
    for (limits, expected) in [
        (
            SaveLimits {
                bytes: 50_000,
                ..LIMITS
            },
            "limit of 50000 bytes",
        ),
        (
            SaveLimits {
                files: 10,
                ..LIMITS
            },
            "limit of 10 files",
        ),
        (
            SaveLimits {
                seconds: 0,
                ..LIMITS
            },
            "limit of 0 s",
        ),
    ] {
        let error = root.save(&access(), limits).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
        assert_eq!(fs::read(fixture.stored("archive")).unwrap(), earlier);
        assert!(!fixture.stored("archive.new").exists());
    }
}

#[test]
fn partial_archive_of_a_killed_save_is_ignored() {
    let fixture = Fixture::saved(|at| fs::write(at.path("first"), "1").unwrap());
    let archive = fs::read(fixture.stored("archive")).unwrap();
    fs::write(fixture.stored("archive.new"), &archive[..archive.len() / 2]).unwrap();
    let root = fixture.start();
    assert_eq!(
        root.restore(&access(), LIMITS).level,
        PersistenceLevel::Root
    );
    root.save(&access(), LIMITS).unwrap();
    assert!(!fixture.stored("archive.new").exists());
}

#[test]
fn entries_of_other_kinds_in_the_store_are_no_obstacle() {
    let fixture = Fixture::new();
    let root = fixture.start();
    let outside = fixture.directory.path().join("outside");
    fs::write(&outside, "kept").unwrap();
    symlink(&outside, fixture.stored("archive.new")).unwrap();
    fs::create_dir_all(fixture.stored("archive/full")).unwrap();
    root.save(&access(), LIMITS).unwrap();
    assert!(fixture.stored("archive").is_file());
    assert_eq!(fs::read_to_string(outside).unwrap(), "kept");
    fs::remove_file(fixture.stored("archive")).unwrap();
    symlink("/etc/passwd", fixture.stored("archive")).unwrap();
    let kept = fixture.start().restore(&access(), LIMITS);
    assert!(kept.reason.is_some());
}

fn entry(path: &str, kind: Kind) -> Entry {
    Entry {
        path: path.into(),
        kind,
        metadata: Metadata {
            mode: 0o755,
            uid: rustix::process::geteuid().as_raw(),
            gid: rustix::process::getegid().as_raw(),
            modified: (0, 0),
            xattrs: Vec::new(),
        },
    }
}

/// Stores an archive of a forger who has the key.
fn forge(fixture: &Fixture, level: PersistenceLevel, entries: &[Entry]) {
    let header = ArchiveHeader {
        version: VERSION,
        level,
        image: access().image,
        salt: [0; SALT_BYTES],
    };
    let key = StateKey::from_text(&access().key).unwrap();
    let mut writer = TarWriter::new(Sealer::new(Vec::new(), &key, &header).unwrap(), u64::MAX);
    for entry in entries {
        writer.begin(entry).unwrap();
        let content = entry.kind.content_bytes();
        writer
            .put(&vec![b'x'; usize::try_from(content).unwrap()])
            .unwrap();
        writer.pad(content).unwrap();
    }
    let archive = writer.finish().unwrap().finish().unwrap();
    File::create(fixture.stored("archive"))
        .unwrap()
        .write_all(&archive)
        .unwrap();
}

/// Unpacks the archive as a start does: the changes of a root, or the workspace of a snapshot.
/// Returns the reason if it is rejected.
fn rejection_reason(
    fixture: &Fixture,
    level: PersistenceLevel,
    limits: SaveLimits,
) -> Option<String> {
    if level == PersistenceLevel::Root {
        return fixture.start().restore(&access(), limits).reason;
    }
    let file = ArchiveFile {
        store: &Store::open(&fixture.directory.path().join("store")).unwrap(),
        name: ARCHIVE,
        level,
        access: &access(),
    };
    let unpacked = file.unpack(limits, &fixture.directory.path().join("root"), &[]);
    unpacked.err().map(|error| error.to_string())
}

const UNPACKED: [PersistenceLevel; 2] = [PersistenceLevel::Root, PersistenceLevel::Workspace];

#[test]
fn hostile_archives_change_nothing_outside_of_the_root() {
    let file = || Kind::File { size: 3 };
    let link = |target: &str| Kind::Symlink(target.into());
    let fixture = Fixture::new();
    fixture.start();
    let outside = fixture.directory.path().join("outside");
    fs::create_dir(&outside).unwrap();
    fs::write(outside.join("victim"), "old").unwrap();
    let target = outside.display().to_string();
    for (name, entries) in [
        (
            "parent is a link",
            vec![entry("l", link(&target)), entry("l/victim", file())],
        ),
        (
            "relative link",
            vec![entry("l", link("../outside")), entry("l/victim", file())],
        ),
        ("dots", vec![entry("../outside/victim", file())]),
        ("absolute", vec![entry(&format!("{target}/victim"), file())]),
        (
            "hard link out",
            vec![entry("h", Kind::HardLink(b"../outside/victim".to_vec()))],
        ),
        (
            "hard link by a link",
            vec![
                entry("l", link(&target)),
                entry("h", Kind::HardLink(b"l/victim".to_vec())),
            ],
        ),
        (
            "whiteout",
            vec![entry("l", link(&target)), entry("l/victim", Kind::Whiteout)],
        ),
        ("whiteout of dots", vec![entry("..", Kind::Whiteout)]),
    ] {
        for level in UNPACKED {
            fixture.renew();
            forge(&fixture, level, &entries);
            let case = format!("{name}, {level}");
            assert!(
                rejection_reason(&fixture, level, LIMITS).is_some(),
                "{case}"
            );
            let is_set_aside = !fixture.stored("archive").exists();
            assert_eq!(is_set_aside, level == PersistenceLevel::Root, "{case}");
            let victim = fs::read_to_string(outside.join("victim")).unwrap();
            assert_eq!(victim, "old", "{case}");
            let links = fs::metadata(outside.join("victim")).unwrap().nlink();
            assert_eq!(links, 1, "{case}");
            assert_eq!(fs::read_dir(&outside).unwrap().count(), 1, "{case}");
        }
    }
    // A link in the place of a file is replaced, not followed.
    for level in UNPACKED {
        fixture.renew();
        symlink(outside.join("victim"), fixture.path("file")).unwrap();
        forge(&fixture, level, &[entry("file", file())]);
        assert_eq!(rejection_reason(&fixture, level, LIMITS), None);
        assert_eq!(fs::read_to_string(fixture.path("file")).unwrap(), "xxx");
        assert_eq!(fs::read_to_string(outside.join("victim")).unwrap(), "old");
    }
}

#[test]
fn bombs_are_refused_before_anything_is_unpacked() {
    let fixture = Fixture::new();
    fixture.start();
    let many: Vec<_> = (0..11)
        .map(|at| entry(&format!("f{at}"), Kind::Fifo))
        .collect();
    let few = SaveLimits {
        files: 10,
        ..LIMITS
    };
    let small = SaveLimits {
        bytes: 1000,
        ..LIMITS
    };
    let large = [
        entry("f0", Kind::File { size: 600 }),
        entry("f1", Kind::File { size: 600 }),
    ];
    for (entries, limits) in [(&many[..], few), (&large, small)] {
        for level in UNPACKED {
            forge(&fixture, level, entries);
            let reason = rejection_reason(&fixture, level, limits).unwrap();
            assert!(reason.contains("exceed the limit"), "{reason}");
            assert!(!fixture.path("f0").exists());
        }
    }
}

#[test]
fn entries_in_place_of_mounts_are_left_out() {
    let fixture = Fixture::new();
    fixture.start();
    fs::create_dir_all(fixture.path("data/volume")).unwrap();
    fs::write(fixture.path("data/volume/file"), "volume").unwrap();
    forge(
        &fixture,
        PersistenceLevel::Root,
        &[
            entry("data", Kind::Whiteout),
            entry("data/volume", Kind::File { size: 3 }),
            entry("data/volume/file", Kind::File { size: 3 }),
            entry("other", Kind::File { size: 3 }),
        ],
    );
    let mut root = fixture.start();
    root.tree.excluded.insert(b"data/volume".to_vec());
    let kept = root.restore(&access(), LIMITS);
    assert!(kept.reason.unwrap().starts_with("3 files are left out"));
    assert_eq!(
        fs::read_to_string(fixture.path("data/volume/file")).unwrap(),
        "volume"
    );
    assert!(fixture.path("other").exists());
}

#[test]
fn unknown_kinds_of_entries_are_refused() {
    for kind in [b'3', b'4', b'L', b'g', b'S', 0] {
        let mut header = tar::Header::new_ustar();
        header.set_size(0);
        header.set_mode(0o644);
        header.set_uid(0);
        header.set_gid(0);
        header.set_mtime(0);
        header.as_old_mut().name[0] = b'd';
        header.as_old_mut().linkflag = [kind];
        header.set_cksum();
        let archive = [&header.as_bytes()[..], &[0; 1024]].concat();
        let is_file = kind == 0;
        assert_eq!(unpack::check(&*archive, LIMITS).is_ok(), is_file, "{kind}");
    }
}

/// Prints times of a save and a restore: `cargo test --release -- --ignored --nocapture speed`.
#[test]
#[ignore = "measures"]
fn speed_of_save_and_restore() {
    let fixture = Fixture::new();
    let began = tokio::time::Instant::now();
    let host = Tree {
        root: File::open("/usr/share").unwrap().into(),
        excluded: [].into(),
    };
    let store = Store::open(&fixture.directory.path().join("store")).unwrap();
    let list = FileList::create(&store, &host).unwrap();
    let listed = began.elapsed();
    let mut records = list.records().unwrap();
    let mut count = 0;
    while records.next().unwrap().is_some() {
        count += 1;
    }
    eprintln!("list of {count} files: {listed:?}");
    let began = tokio::time::Instant::now();
    changes::visit(&host, &list, Deadline::NONE, |_| Ok(())).unwrap();
    eprintln!("comparison of {count} files: {:?}", began.elapsed());
    let root = fixture.start();
    let content: Vec<u8> = (0..=250).cycle().take(1 << 20).collect();
    for at in 0..128 {
        fs::write(fixture.path(&format!("file-{at}")), &content).unwrap();
    }
    for _ in 0..3 {
        let began = tokio::time::Instant::now();
        root.save(&access(), LIMITS).unwrap();
        eprintln!("save of 128 MiB: {:?}", began.elapsed());
        fixture.renew();
        let began = tokio::time::Instant::now();
        let kept = root.restore(&access(), LIMITS);
        eprintln!("restore of 128 MiB: {:?} {kept:?}", began.elapsed());
    }
}
