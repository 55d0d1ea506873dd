use std::fs;
use std::path::Path;

use tempfile::TempDir;

use super::MAX_CHUNK_BYTES;
use super::cipher::Algorithm;
use super::key::ArchiveKey;
use super::manifest::Manifest;
use super::reader::ArchiveReader;
use super::writer::ArchiveWriter;
use crate::error::FailureReason;

fn manifest_fixture() -> Manifest {
    Manifest {
        root_pid: 1000,
        pids: vec![1000, 1003],
        highest_pid: 1003,
        lowest_pid: 1000,
        outside_pipes: Vec::new(),
        image_bytes: 8,
    }
}

fn key() -> ArchiveKey {
    ArchiveKey::new([7; 32])
}

fn write_archive(path: &Path, limit: u64) -> Result<(), FailureReason> {
    write_with(Algorithm::fastest(), path, limit)
}

fn write_with(algorithm: Algorithm, path: &Path, limit: u64) -> Result<(), FailureReason> {
    let mut writer = ArchiveWriter::create(path, algorithm, &key(), b"sandbox", limit, false)?;
    let first = writer.add_image("first.img".into())?;
    let second = writer.add_image("second.img".into())?;
    writer.append(first, &mut b"one".to_vec())?;
    writer.append(second, &mut b"two".to_vec())?;
    writer.append(first, &mut b"33".to_vec())?;
    writer.complete(manifest_fixture(), false)?;
    Ok(writer.put_in_place(false)?)
}

fn read_all(path: &Path, key: &ArchiveKey, context: &[u8]) -> Result<Vec<u8>, FailureReason> {
    let archive = ArchiveReader::open(path, key, context)?;
    let (mut all, mut chunk) = (Vec::new(), Vec::new());
    for name in ["first.img", "second.img"] {
        for number in archive.image(name).unwrap().to_vec() {
            archive.read_chunk(number, &mut chunk)?;
            all.extend_from_slice(&chunk);
        }
    }
    Ok(all)
}

#[test]
fn images_with_interleaved_chunks_are_read_back_with_each_cipher() {
    for algorithm in Algorithm::ALL {
        let folder = TempDir::new().unwrap();
        let path = folder.path().join("archive");
        write_with(algorithm, &path, 8).unwrap();
        assert_eq!(read_all(&path, &key(), b"sandbox").unwrap(), b"one33two");
        let archive = ArchiveReader::open(&path, &key(), b"sandbox").unwrap();
        assert_eq!(archive.manifest, manifest_fixture());
        assert!(archive.image("third.img").is_none());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }
}

#[test]
fn archive_that_is_flushed_while_it_grows_is_complete() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("archive");
    let limit = 1 << 30;
    let algorithm = Algorithm::fastest();
    let mut writer =
        ArchiveWriter::create(&path, algorithm, &key(), b"sandbox", limit, true).unwrap();
    let image = writer.add_image("first.img".into()).unwrap();
    // More than two flushes.
    for chunk in 0..40 {
        writer
            .append(image, &mut vec![chunk; MAX_CHUNK_BYTES])
            .unwrap();
    }
    writer.complete(manifest_fixture(), true).unwrap();
    writer.put_in_place(true).unwrap();
    let archive = ArchiveReader::open(&path, &key(), b"sandbox").unwrap();
    let chunks = archive.image("first.img").unwrap();
    assert_eq!(chunks.len(), 40);
    let mut content = Vec::new();
    for (number, expected) in chunks.iter().zip(0..) {
        archive.read_chunk(*number, &mut content).unwrap();
        assert_eq!(content, vec![expected; MAX_CHUNK_BYTES]);
    }
}

#[test]
fn cipher_that_another_header_names_opens_nothing() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("archive");
    let [first, second] = Algorithm::ALL;
    for (written, named) in [(first, second), (second, first)] {
        write_with(written, &path, 8).unwrap();
        let mut bytes = fs::read(&path).unwrap();
        bytes[..8].copy_from_slice(named.magic());
        fs::write(&path, bytes).unwrap();
        let read = read_all(&path, &key(), b"sandbox");
        assert!(matches!(read, Err(FailureReason::ArchiveInvalid(_))));
    }
}

#[test]
fn archive_with_other_key_or_context_is_refused() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("archive");
    write_archive(&path, 8).unwrap();
    assert!(read_all(&path, &ArchiveKey::new([8; 32]), b"sandbox").is_err());
    assert!(read_all(&path, &key(), b"other").is_err());
}

#[test]
fn every_changed_byte_and_every_truncation_is_refused() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("archive");
    write_archive(&path, 8).unwrap();
    let original = fs::read(&path).unwrap();
    for place in 0..original.len() {
        let mut changed = original.clone();
        changed[place] ^= 1;
        fs::write(&path, &changed).unwrap();
        assert!(read_all(&path, &key(), b"sandbox").is_err(), "byte {place}");
        fs::write(&path, &original[..place]).unwrap();
        assert!(
            read_all(&path, &key(), b"sandbox").is_err(),
            "cut at {place}"
        );
    }
    fs::write(&path, [original.as_slice(), &[0; 8]].concat()).unwrap();
    assert!(read_all(&path, &key(), b"sandbox").is_err());
}

#[test]
fn swapped_chunks_are_refused() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("archive");
    write_archive(&path, 8).unwrap();
    let mut bytes = fs::read(&path).unwrap();
    // The first two chunks are 3 + 16 bytes long.
    let (first, rest) = bytes[40..].split_at_mut(19);
    first.swap_with_slice(&mut rest[..19]);
    fs::write(&path, bytes).unwrap();
    assert!(read_all(&path, &key(), b"sandbox").is_err());
}

#[test]
fn archive_over_limit_is_refused() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("archive");
    let refused = write_archive(&path, 7);
    assert!(matches!(refused, Err(FailureReason::SizeLimit(7))));
}
