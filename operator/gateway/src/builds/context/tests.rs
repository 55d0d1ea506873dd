use std::io::Write as _;

use base64::Engine as _;
use flate2::Compression;
use flate2::write::GzEncoder;
use tar::{Builder, EntryType, Header};

use super::*;

const TEST_LIMITS: Limits = Limits {
    bytes: 4 << 20,
    entries: 100,
};

type Tar = Builder<Vec<u8>>;

fn file(tar: &mut Tar, path: &str, content: &[u8]) {
    let mut header = Header::new_ustar();
    header.set_mode(0o644);
    header.set_size(content.len() as u64);
    header.set_entry_type(EntryType::Regular);
    tar.append_data(&mut header, path, content).unwrap();
}

/// An entry whose header says anything.
fn raw(tar: &mut Tar, kind: EntryType, path: &[u8], link: &[u8]) {
    let mut header = Header::new_ustar();
    header.set_mode(0o777);
    header.set_entry_type(kind);
    header.as_mut_bytes()[..path.len()].copy_from_slice(path);
    header.as_mut_bytes()[157..157 + link.len()].copy_from_slice(link);
    header.set_size(0);
    header.set_cksum();
    tar.append(&header, io::empty()).unwrap();
}

/// As a client sends an archive.
pub(crate) fn encode(tar: &[u8]) -> String {
    let mut compressed = GzEncoder::new(Vec::new(), Compression::fast());
    compressed.write_all(tar).unwrap();
    STANDARD.encode(compressed.finish().unwrap())
}

fn read_tar(fill: impl FnOnce(&mut Tar)) -> Result<BuildContext, ContextError> {
    let mut tar = Builder::new(Vec::new());
    fill(&mut tar);
    let tar = tar.into_inner().unwrap_or_default();
    read_limited(encode(&tar).as_bytes(), TEST_LIMITS, None)
}

#[track_caller]
fn assert_rejected(fill: impl FnOnce(&mut Tar), text: &str) {
    let error = read_tar(|tar| {
        file(tar, "Dockerfile", b"FROM a\n");
        fill(tar);
    });
    let error = error.unwrap_err().to_string();
    assert!(error.contains(text), "{error}");
}

#[test]
fn dockerfile_and_digest_are_kept() {
    let [one, other] = [false, true].map(|reversed| {
        let mut files = vec![("./Dockerfile", "FROM a\n"), ("./code/x.py", "1")];
        if reversed {
            files.reverse();
        }
        let context = read_tar(|tar| {
            raw(tar, EntryType::Directory, b"./", b"");
            raw(tar, EntryType::Symlink, b"code/link", b"../Dockerfile");
            for (path, content) in files {
                file(tar, path, content.as_bytes());
            }
        });
        context.unwrap()
    });
    assert_eq!(one.dockerfile, "FROM a\n");
    assert!(one.digest.starts_with("sha256:") && one.digest.len() == 71);
    assert_eq!(
        (&one.dockerfile, &one.digest),
        (&other.dockerfile, &other.digest)
    );
    let changed = read_tar(|tar| file(tar, "Dockerfile", b"FROM a\n")).unwrap();
    assert_ne!(one.digest, changed.digest);
}

#[test]
fn long_names_and_pax_headers_are_read() {
    let long = format!("code/{}", "d/".repeat(200));
    let context = read_tar(|tar| {
        let times = [("mtime", &b"1.5"[..]), ("path", b"Dockerfile")];
        tar.append_pax_extensions(times).unwrap();
        raw(tar, EntryType::Regular, b"short", b"");
        let mut header = Header::new_gnu();
        header.set_mode(0o644);
        header.set_size(1);
        tar.append_data(&mut header, format!("{long}x"), &b"1"[..])
            .unwrap();
    });
    assert_eq!(context.unwrap().dockerfile, "");
    let outside = |tar: &mut Tar| {
        tar.append_pax_extensions([("path", &b"../x"[..])]).unwrap();
        raw(tar, EntryType::Regular, b"inside", b"");
    };
    assert_rejected(outside, "\"../x\" leads out of it");
}

#[test]
fn hostile_entries_are_rejected() {
    for path in [&b"../a"[..], b"/etc/passwd", b"a/../../b"] {
        assert_rejected(
            |tar| raw(tar, EntryType::Regular, path, b""),
            "leads out of it",
        );
    }
    for (kind, link) in [
        (EntryType::Symlink, &b"/etc/passwd"[..]),
        (EntryType::Symlink, b"../../a"),
        (EntryType::Symlink, b""),
        (EntryType::Link, b"../a"),
        (EntryType::Link, b"/a"),
    ] {
        assert_rejected(|tar| raw(tar, kind, b"code/l", link), "the link");
    }
    for kind in [
        EntryType::Char,
        EntryType::Block,
        EntryType::Fifo,
        EntryType::GNUSparse,
        EntryType::new(b'Z'),
    ] {
        let rejected = |tar: &mut Tar| raw(tar, kind, b"dev", b"");
        assert_rejected(rejected, "is not a file, directory or link");
    }
    let second = |tar: &mut Tar| file(tar, "./Dockerfile", b"");
    assert_rejected(second, "more than one Dockerfile");
    let huge = |tar: &mut Tar| {
        tar.append_pax_extensions([("size", &b"99999999999"[..])])
            .unwrap();
        raw(tar, EntryType::Regular, b"a", b"");
    };
    assert_rejected(huge, "exceeds 4 MiB");
}

#[test]
fn headers_and_dockerfile_are_limited() {
    let name = |tar: &mut Tar| {
        let mut header = Header::new_gnu();
        header.set_entry_type(EntryType::GNULongName);
        let name = vec![b'a'; 100_000];
        header.set_size(100_000);
        header.set_cksum();
        tar.append(&header, &name[..]).unwrap();
    };
    assert_rejected(name, "a header of an entry exceeds 65536 bytes");
    let long = read_tar(|tar| file(tar, "Dockerfile", &vec![b'#'; (1 << 20) + 1]));
    assert!(matches!(long, Err(ContextError::LongDockerfile { .. })));
    let binary = read_tar(|tar| file(tar, "Dockerfile", b"FROM \xff"));
    assert!(matches!(binary, Err(ContextError::BinaryDockerfile)));
    let missing = read_tar(|tar| file(tar, "code/Dockerfile", b"FROM a"));
    assert!(matches!(missing, Err(ContextError::NoDockerfile)));
    let linked = read_tar(|tar| raw(tar, EntryType::Symlink, b"Dockerfile", b"code"));
    assert!(matches!(linked, Err(ContextError::NoDockerfile)));
}

#[test]
fn decompression_bomb_is_rejected() {
    let mut compressed = GzEncoder::new(Vec::new(), Compression::fast());
    let mut header = Header::new_ustar();
    header.set_path("Dockerfile").unwrap();
    header.set_entry_type(EntryType::Regular);
    header.set_mode(0o644);
    header.set_size(0);
    header.set_cksum();
    compressed.write_all(header.as_bytes()).unwrap();
    header.set_path("bomb").unwrap();
    header.set_size(TEST_LIMITS.bytes);
    header.set_cksum();
    compressed.write_all(header.as_bytes()).unwrap();
    let zeros = vec![0; 1 << 20];
    for _ in 0..TEST_LIMITS.bytes >> 20 {
        compressed.write_all(&zeros).unwrap();
    }
    let bomb = STANDARD.encode(compressed.finish().unwrap());
    assert!(bomb.len() < 64 << 10);
    let read = read_limited(bomb.as_bytes(), TEST_LIMITS, None);
    assert!(matches!(read, Err(ContextError::TooLarge { .. })));
}

#[test]
fn too_many_entries_are_rejected() {
    let many = |tar: &mut Tar| {
        for _ in 0..100 {
            raw(tar, EntryType::Directory, b"d", b"");
        }
    };
    assert_rejected(many, "more than 100 entries");
}

#[test]
fn text_that_is_not_an_archive_is_rejected() {
    let mut tar = Builder::new(Vec::new());
    file(&mut tar, "Dockerfile", b"FROM a\n");
    file(&mut tar, "code", &[b'x'; 5000]);
    let tar = tar.into_inner().unwrap();
    let whole = encode(&tar);
    assert!(read(whole.as_bytes(), false).is_ok());
    let truncated = encode(&tar[..2000]);
    let half = &whole[..whole.len() / 8 * 4];
    let plain = STANDARD.encode(&tar);
    for text in ["", "no base64!", "AAAA", half, &truncated, &plain] {
        let error = read(text.as_bytes(), false).unwrap_err();
        let expected = matches!(
            error,
            ContextError::Malformed(_) | ContextError::NoDockerfile
        );
        assert!(expected, "{error}");
    }
}
