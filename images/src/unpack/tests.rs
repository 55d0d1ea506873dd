//! Real files, made by root as the node does.

use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};

use flate2::Compression;
use flate2::write::GzEncoder;
use tar::{EntryType, Header};

use super::*;

const LIMITS: Limits = Limits {
    bytes: 1 << 20,
    entries: 1000,
};

/// Archive under construction.
#[derive(Default)]
struct Layer(Vec<u8>);

impl Layer {
    fn raw(mut self, kind: u8, path: &str, link: &str, content: &[u8]) -> Self {
        let mut header = Header::new_ustar();
        header.set_entry_type(EntryType::new(kind));
        header.as_old_mut().name[..path.len()].copy_from_slice(path.as_bytes());
        header.as_old_mut().linkname[..link.len()].copy_from_slice(link.as_bytes());
        header.set_mode(if kind == b'5' { 0o755 } else { 0o644 });
        header.set_uid(7);
        header.set_gid(8);
        header.set_mtime(1000);
        header.set_size(content.len() as u64);
        if matches!(kind, b'3' | b'4') {
            header.set_device_major(0).unwrap();
            header.set_device_minor(0).unwrap();
        }
        header.set_cksum();
        self.0.extend_from_slice(header.as_bytes());
        self.0.extend_from_slice(content);
        self.0.resize(self.0.len().next_multiple_of(512), 0);
        self
    }

    fn file(self, path: &str, content: &str) -> Self {
        self.raw(b'0', path, "", content.as_bytes())
    }

    fn directory(self, path: &str) -> Self {
        self.raw(b'5', path, "", b"")
    }

    fn symlink(self, path: &str, target: &str) -> Self {
        self.raw(b'2', path, target, b"")
    }

    fn link(self, path: &str, target: &str) -> Self {
        self.raw(b'1', path, target, b"")
    }

    fn pax(self, records: &[(&str, &str)]) -> Self {
        let mut content = String::new();
        for (key, value) in records {
            let rest = key.len() + value.len() + 3;
            let mut length = rest + 1;
            while length != rest + length.to_string().len() {
                length += 1;
            }
            writeln!(content, "{length} {key}={value}").unwrap();
        }
        self.raw(b'x', "pax", "", content.as_bytes())
    }

    /// Changes the header that was added last.
    fn with(mut self, change: impl FnOnce(&mut Header)) -> Self {
        let at = self.0.len() - 512;
        let mut header = Header::new_ustar();
        header.as_mut_bytes().copy_from_slice(&self.0[at..]);
        change(&mut header);
        header.set_cksum();
        self.0.truncate(at);
        self.0.extend_from_slice(header.as_bytes());
        self
    }

    fn end(mut self) -> Vec<u8> {
        self.0.resize(self.0.len() + 1024, 0);
        self.0
    }
}

struct Place {
    directory: tempfile::TempDir,
    /// Layers so far, topmost first.
    layers: Vec<PathBuf>,
}

fn place() -> Option<Place> {
    if !rustix::process::geteuid().is_root() {
        eprintln!("SKIPPED: unpacking needs root");
        return None;
    }
    Some(Place {
        directory: tempfile::tempdir().unwrap(),
        layers: Vec::new(),
    })
}

impl Place {
    fn unpack(&mut self, archive: &[u8]) -> Result<UnpackedLayer, UnpackError> {
        let path = self.directory.path().join(self.layers.len().to_string());
        assert!(fs::create_dir(&path).is_ok());
        let unpacked = unpack(archive, &path, &self.layers, &LIMITS);
        self.layers.insert(0, path);
        unpacked
    }

    fn top(&self, path: &str) -> PathBuf {
        self.layers[0].join(path)
    }

    fn read(&self, path: &str) -> String {
        fs::read_to_string(self.top(path)).unwrap()
    }
}

fn xattr(path: &Path, name: &str) -> Option<Vec<u8>> {
    let mut value = vec![0; 100];
    let length = rustix::fs::lgetxattr(path, name, &mut value[..]).ok()?;
    value.truncate(length);
    Some(value)
}

fn is_whiteout(path: &Path) -> bool {
    let metadata = fs::symlink_metadata(path).unwrap();
    metadata.file_type().is_char_device() && metadata.rdev() == 0
}

#[test]
fn entries_have_type_owner_mode_and_time() {
    let Some(mut place) = place() else { return };
    let archive = Layer::default()
        .directory("./")
        .directory("./sticky/")
        .with(|header| header.set_mode(0o1777))
        .file("/sticky/setuid", "")
        .with(|header| header.set_mode(0o4755))
        .pax(&[
            ("mtime", "1234.5"),
            ("uid", "100000"),
            ("SCHILY.xattr.user.a", "b"),
        ])
        .file("sticky/file", "content")
        .symlink("link", "/nowhere/../x")
        .raw(b'6', "fifo", "", b"")
        .pax(&[("mtime", "1234.5"), ("uid", "100000")])
        .link("again", "sticky/file");
    place.unpack(&archive.end()).unwrap();
    let stat = |path: &str| fs::symlink_metadata(place.top(path)).unwrap();
    // As in containerd, the entry of the root does not count.
    assert_eq!((stat("").uid(), stat("").mode() & 0o7777), (0, 0o755));
    assert_eq!(
        (stat("sticky").mode() & 0o7777, stat("sticky").mtime()),
        (0o1777, 1000)
    );
    assert_eq!(
        (
            stat("sticky/setuid").mode() & 0o7777,
            stat("sticky/setuid").gid()
        ),
        (0o4755, 8)
    );
    let file = stat("sticky/file");
    assert_eq!(
        (file.uid(), file.mtime(), file.mtime_nsec()),
        (100_000, 1234, 500_000_000)
    );
    assert_eq!((file.nlink(), stat("again").ino()), (2, file.ino()));
    assert_eq!(xattr(&place.top("again"), "user.a").unwrap(), b"b");
    assert_eq!(
        fs::read_link(place.top("link")).unwrap(),
        Path::new("/nowhere/../x")
    );
    assert_eq!((stat("link").uid(), stat("link").mtime()), (7, 1000));
    assert!(stat("fifo").file_type().is_fifo());
    assert_eq!(stat("fifo").mode() & 0o7777, 0o644);
}

#[test]
fn digest_and_sizes_are_those_of_the_uncompressed_archive() {
    let Some(mut place) = place() else { return };
    let archive = Layer::default().file("a", "12345").directory("b").end();
    let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
    gzip.write_all(&archive[..700]).unwrap();
    let mut parts = gzip.finish().unwrap();
    let mut second = GzEncoder::new(&mut parts, Compression::fast());
    second.write_all(&archive[700..]).unwrap();
    second.finish().unwrap();
    let zstd = zstd::encode_all(&archive[..], 1).unwrap();
    for compressed in [&archive, &parts, &zstd] {
        let unpacked = place.unpack(compressed).unwrap();
        let expected = UnpackedLayer {
            diff_id: Digest::of(&archive),
            bytes: 5,
            entries: 2,
        };
        assert_eq!(unpacked, expected);
    }
    let padded = [archive, vec![0; 100_000]].concat();
    let unpacked = place.unpack(&padded).unwrap();
    assert_eq!(unpacked.diff_id, Digest::of(&padded));
}

#[test]
fn numbers_of_headers_may_be_binary_or_empty() {
    let Some(mut place) = place() else { return };
    let archive = Layer::default()
        .file("a", "")
        .with(|header| {
            header.as_old_mut().uid = [0x80, 0, 0, 0, 0, 1, 0, 2];
            header.as_old_mut().gid = [0; 8];
            header.as_old_mut().mtime = [0xff; 12];
        })
        .file("b", "")
        .with(|header| header.as_old_mut().mode = *b"  644 \0\0");
    place.unpack(&archive.end()).unwrap();
    let stat = |path: &str| fs::symlink_metadata(place.top(path)).unwrap();
    assert_eq!(
        (stat("a").uid(), stat("a").gid(), stat("a").mtime()),
        (65538, 0, 0)
    );
    assert_eq!(stat("b").mode() & 0o7777, 0o644);
    let negative = Layer::default()
        .file("a", "")
        .with(|header| header.as_old_mut().size = [0xff; 12]);
    place.unpack(&negative.end()).unwrap_err();
}

#[test]
fn whiteouts_hide_layers_below_only() {
    let Some(mut place) = place() else { return };
    let archive = Layer::default()
        .file("etc/.wh.gone", "")
        .file("etc/own", "1")
        .file("etc/.wh.own", "")
        .file("opt/.wh..wh..opq", "")
        .file("opt/new", "2")
        .file(".wh.replaced", "")
        .directory("replaced")
        .file("replaced/x", "3")
        .directory("kept")
        .file(".wh.kept", "")
        .file("etc/.wh..wh.plnk", "");
    place.unpack(&archive.end()).unwrap();
    assert!(is_whiteout(&place.top("etc/gone")));
    assert_eq!(
        (place.read("etc/own"), place.read("opt/new")),
        ("1".into(), "2".into())
    );
    for opaque in ["opt", "replaced", "kept"] {
        let value = xattr(&place.top(opaque), "trusted.overlay.opaque");
        assert_eq!(value.as_deref(), Some(&b"y"[..]), "{opaque}");
    }
    assert_eq!(fs::read_dir(place.top("etc")).unwrap().count(), 2);
    assert!(xattr(&place.top("etc"), "trusted.overlay.opaque").is_none());
}

#[test]
fn links_and_parents_of_layers_below_are_copied() {
    let Some(mut place) = place() else { return };
    let base = Layer::default()
        .directory("data")
        .with(|header| header.set_mode(0o2770))
        .pax(&[("SCHILY.xattr.user.k", "v")])
        .file("data/file", "base")
        .file("data/hidden", "")
        .symlink("short", "data");
    place.unpack(&base.end()).unwrap();
    let middle = Layer::default().file("data/.wh.hidden", "");
    place.unpack(&middle.end()).unwrap();
    let top = Layer::default()
        .link("data/other", "data/file")
        .link("third", "data/file");
    place.unpack(&top.end()).unwrap();
    let data = fs::metadata(place.top("data")).unwrap();
    assert_eq!(
        (data.mode() & 0o7777, data.uid(), data.mtime()),
        (0o2770, 7, 1000)
    );
    assert_eq!(place.read("data/other"), "base");
    assert_eq!(fs::metadata(place.top("third")).unwrap().nlink(), 3);
    assert_eq!(xattr(&place.top("third"), "user.k").unwrap(), b"v");
    let hidden = Layer::default().link("x", "data/hidden").end();
    let error = place.unpack(&hidden).unwrap_err();
    assert!(matches!(error, UnpackError::LinkTarget(..)), "{error}");
}

#[test]
fn last_of_several_entries_wins() {
    let Some(mut place) = place() else { return };
    let archive = Layer::default()
        .file("a", "1")
        .file("a", "2")
        .directory("b")
        .file("b/c/d", "3")
        .file("b", "4")
        .file("e", "5")
        .directory("e")
        .file("e/f", "6")
        .symlink("g", "e")
        .file("g", "7")
        .symlink("h", "e")
        .file("h/through", "8");
    place.unpack(&archive.end()).unwrap();
    for (path, content) in [
        ("a", "2"),
        ("b", "4"),
        ("e/f", "6"),
        ("g", "7"),
        ("e/through", "8"),
    ] {
        assert_eq!(place.read(path), content, "{path}");
    }
}

#[test]
fn long_names_of_both_kinds_are_read() {
    let Some(mut place) = place() else { return };
    let long = format!("d/{}", "n".repeat(200));
    let pax = format!("d/{}", "p".repeat(200));
    let archive = Layer::default()
        .raw(b'L', "././@LongLink", "", format!("{long}\0").as_bytes())
        .file("short", "1")
        .pax(&[("path", &pax), ("comment", "x")])
        .file("short", "2")
        .raw(b'K', "././@LongLink", "", format!("{long}\0").as_bytes())
        .link("linked", "short")
        .raw(b'g', "global", "", b"18 path=elsewhere\n");
    place.unpack(&archive.end()).unwrap();
    assert_eq!(
        (place.read(&long), place.read(&pax)),
        ("1".into(), "2".into())
    );
    assert_eq!(place.read("linked"), "1");
}

#[test]
fn nothing_outside_is_touched() {
    let Some(mut place) = place() else { return };
    let outside = tempfile::tempdir().unwrap();
    fs::write(outside.path().join("file"), "safe").unwrap();
    let host = outside.path().to_str().unwrap().to_owned();
    let up = format!("{}{}", "../".repeat(12), &host[1..]);
    let archives = [
        Layer::default().file("../evil", "x"),
        Layer::default().file("a/../../evil", "x"),
        Layer::default().symlink("a", &host).file("a/file", "evil"),
        Layer::default().symlink("a", &up).file("a/file", "evil"),
        Layer::default()
            .symlink("a", &up)
            .symlink("b", "a")
            .file("b/new", "evil"),
        Layer::default()
            .symlink("a", &format!("{host}/file"))
            .file("a", "evil"),
        Layer::default().symlink("a", &host).directory("a/new"),
        Layer::default().symlink("a", &host).file("a/.wh.file", ""),
        Layer::default()
            .symlink("a", &host)
            .file("a/.wh..wh..opq", ""),
        Layer::default().link("a", &format!("{host}/file")),
        Layer::default().link("a", &format!("../../{host}/file")),
        Layer::default().symlink("a", &host).link("b", "a/file"),
        Layer::default().file(".wh...", ""),
        Layer::default().file(".wh..", ""),
        Layer::default().file(".wh.", ""),
    ];
    for (number, archive) in archives.into_iter().enumerate() {
        let refused = place.unpack(&archive.end()).is_err();
        let must_refuse = [0, 1, 9, 10, 11, 12, 13, 14].contains(&number);
        assert!(refused || !must_refuse, "archive {number} was accepted");
        assert_eq!(
            fs::read_to_string(outside.path().join("file")).unwrap(),
            "safe"
        );
        assert_eq!(
            fs::read_dir(outside.path()).unwrap().count(),
            1,
            "archive {number}"
        );
        assert!(xattr(outside.path(), "trusted.overlay.opaque").is_none());
        assert!(!place.directory.path().join("evil").exists());
    }
    // Links of a layer below are not followed either.
    let below = Layer::default().symlink("a", &host);
    place.unpack(&below.end()).unwrap();
    let link = Layer::default().link("b", "a/file").end();
    place.unpack(&link).unwrap_err();
    let file = Layer::default().file("a/file", "evil").end();
    place.unpack(&file).unwrap();
    assert_eq!(
        fs::read_to_string(outside.path().join("file")).unwrap(),
        "safe"
    );
}

#[test]
fn overlay_metadata_cannot_be_forged() {
    let Some(mut place) = place() else { return };
    let archive = Layer::default()
        .pax(&[
            ("SCHILY.xattr.trusted.overlay.redirect", "/etc"),
            ("SCHILY.xattr.user.overlay.opaque", "y"),
            ("SCHILY.xattr.user.kept", "1"),
        ])
        .directory("a");
    place.unpack(&archive.end()).unwrap();
    assert!(xattr(&place.top("a"), "trusted.overlay.redirect").is_none());
    assert!(xattr(&place.top("a"), "user.overlay.opaque").is_none());
    assert!(xattr(&place.top("a"), "user.kept").is_some());
    for kind in [b'3', b'4'] {
        let device = Layer::default().raw(kind, "null", "", b"").end();
        let error = place.unpack(&device).unwrap_err();
        assert_eq!(error.to_string(), "\"null\" is a device");
    }
}

#[test]
fn bad_archives_are_refused() {
    let Some(mut place) = place() else { return };
    let file = || Layer::default().file("a", "12345").end();
    let truncated = file()[..515].to_vec();
    let mut sum = file();
    sum[0] = b'b';
    let mut size = Layer::default()
        .file("a", "")
        .with(|header| header.set_size(5000))
        .0;
    size.resize(1024, 0);
    let huge = Layer::default()
        .file("a", "")
        .with(|header| header.set_size(2 << 20));
    let long = Layer::default().raw(b'L', "x", "", &vec![b'a'; 5000]);
    let pax = Layer::default().raw(b'x', "x", "", &vec![b'1'; 2 << 20]);
    let deep = Layer::default()
        .pax(&[("path", &"a/".repeat(600))])
        .file("a", "");
    let name = Layer::default()
        .pax(&[("path", &"a".repeat(300))])
        .file("a", "");
    let many = (0..1001).fold(Layer::default(), |layer, n| layer.file(&n.to_string(), ""));
    let odd = Layer::default().raw(b'S', "sparse", "", b"");
    let records = Layer::default()
        .raw(b'x', "x", "", b"99 path=a\n")
        .file("a", "");
    for (archive, expected) in [
        (truncated, "archive ends too early"),
        (sum, "archive is not valid: checksum of a header"),
        (size, "archive ends too early"),
        (huge.end(), "files exceed the limit of 1048576 bytes"),
        (
            long.end(),
            "path of 5000 bytes is too long, the limit is 4097",
        ),
        (
            pax.end(),
            "extension header of 2097152 bytes is too long, the limit is 1048576",
        ),
        (
            deep.end(),
            "depth of a path of 600 bytes is too long, the limit is 512",
        ),
        (
            name.end(),
            "name of 300 bytes is too long, the limit is 255",
        ),
        (many.end(), "files exceed the limit of 1000"),
        (odd.end(), "\"sparse\" has type 'S', which is not supported"),
        (records.end(), "archive is not valid: pax header"),
        (b"\x1f\x8b\x08garbage".to_vec(), ""),
        (b"\x28\xb5\x2f\xfdgarbage".to_vec(), ""),
    ] {
        let error = place.unpack(&archive).unwrap_err().to_string();
        assert!(error.starts_with(expected), "{error}");
    }
}

#[test]
fn bomb_is_refused_before_its_content_is_written() {
    let Some(mut place) = place() else { return };
    let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
    let header = Layer::default()
        .file("zeros", "")
        .with(|header| header.set_size(900 << 10))
        .0;
    for _ in 0..2 {
        gzip.write_all(&header).unwrap();
        gzip.write_all(&vec![0; 900 << 10]).unwrap();
    }
    let error = place.unpack(&gzip.finish().unwrap()).unwrap_err();
    assert!(matches!(error, UnpackError::Bytes(_)), "{error}");
}
