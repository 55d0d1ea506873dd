//! Archives made from lines of text with correct checksums. Byte mutations would fail at the
//! checksum before they reach the code under test.

use rustix::fs::FileType;

const UTF8: u16 = 1 << 11;
const UNIX: u16 = 3 << 8;

#[derive(Debug)]
pub(super) struct ArchiveEntry {
    pub(super) kind: FileType,
    mode: u32,
    pub(super) name: String,
    pub(super) content: Vec<u8>,
}

/// Parses lines such as `f644 name=content`; `d` is a directory, `l` a link, `p` a pipe.
pub(super) fn parse(bytes: &[u8]) -> Vec<ArchiveEntry> {
    let text = String::from_utf8_lossy(bytes);
    text.split('\n').filter_map(entry).take(64).collect()
}

fn entry(line: &str) -> Option<ArchiveEntry> {
    let (head, rest) = line.split_once(' ')?;
    let (name, content) = rest.split_once('=').unwrap_or((rest, ""));
    let mode = head.get(1..)?;
    let kind = match head.chars().next()? {
        'f' => FileType::RegularFile,
        'd' => FileType::Directory,
        'l' => FileType::Symlink,
        'p' => FileType::Fifo,
        _ => return None,
    };
    // Archive readers treat both as a directory.
    let slash = name.ends_with(['/', '\\']);
    Some(ArchiveEntry {
        name: match kind {
            FileType::Directory if !slash => format!("{name}/"),
            _ => name.to_owned(),
        },
        kind: if slash { FileType::Directory } else { kind },
        mode: u32::from_str_radix(mode, 8).unwrap_or(0o644) & 0o7777,
        content: content.as_bytes().to_vec(),
    })
}

pub(super) fn pack(entries: &[ArchiveEntry]) -> Vec<u8> {
    let (mut archive, mut directory) = (Vec::new(), Vec::new());
    for entry in entries {
        let start = archive.len();
        archive.extend(b"PK\x03\x04");
        archive.extend(common(entry));
        archive.extend(entry.name.bytes());
        archive.extend(&entry.content);
        directory.extend(b"PK\x01\x02");
        directory.extend((UNIX + 20).to_le_bytes());
        directory.extend(common(entry));
        directory.extend([0; 6]);
        let attributes = (entry.kind.as_raw_mode() | entry.mode) << 16;
        directory.extend(attributes.to_le_bytes());
        directory.extend(small(start).to_le_bytes());
        directory.extend(entry.name.bytes());
    }
    let (start, length) = (small(archive.len()), small(directory.len()));
    let [low, high, ..] = small(entries.len()).to_le_bytes();
    archive.extend(directory);
    archive.extend(b"PK\x05\x06\0\0\0\0");
    archive.extend([low, high, low, high]);
    archive.extend(length.to_le_bytes());
    archive.extend(start.to_le_bytes());
    archive.extend([0; 2]);
    archive
}

/// Fields that the local and the central header share.
fn common(entry: &ArchiveEntry) -> Vec<u8> {
    let mut common = Vec::from(20u16.to_le_bytes());
    common.extend(UTF8.to_le_bytes());
    common.extend([0; 6]);
    common.extend(checksum(&entry.content).to_le_bytes());
    common.extend(small(entry.content.len()).to_le_bytes());
    common.extend(small(entry.content.len()).to_le_bytes());
    common.extend(&small(entry.name.len()).to_le_bytes()[..2]);
    common.extend([0; 2]);
    common
}

fn small(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

fn checksum(bytes: &[u8]) -> u32 {
    let mut rest = u32::MAX;
    for byte in bytes {
        rest ^= u32::from(*byte);
        for _ in 0..8 {
            rest = (rest >> 1) ^ (0xedb8_8320 & (rest & 1).wrapping_neg());
        }
    }
    !rest
}
