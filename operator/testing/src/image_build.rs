//! Image builds as V0 clients send them: a Dockerfile that a release rendered, in a build context,
//! in a form.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use flate2::Compression;
use flate2::write::GzEncoder;
use tar::{Builder, EntryType, Header};

/// Separates the parts of [`form`].
const BOUNDARY: &str = "f54d8a8f1c0e4b1b";

/// Content type of a form.
pub const FORM_TYPE: &str = "multipart/form-data; boundary=f54d8a8f1c0e4b1b";

/// Releases of the client whose Dockerfiles are known here. That of the last one is also what the
/// main branch rendered at version 0.62.0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Release {
    V0_9,
    V0_10,
    V0_54,
    V0_62,
}

/// Kinds of Dockerfiles, by the image that is there already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rung {
    Scratch,
    Versioned,
    Lock,
}

/// Dockerfile of a release, as its package renders it. The two oldest have one kind for all runtime
/// images: 0.9 installs the dependencies again, 0.10 does not.
pub fn dockerfile(release: Release, rung: Rung, base: &str) -> String {
    let version = match release {
        Release::V0_9 => "0.9.8",
        Release::V0_10 => "0.10.0",
        Release::V0_54 => "0.54.0",
        Release::V0_62 => "1.0.0",
    };
    let rung = match (rung, release) {
        (Rung::Scratch, _) => "scratch",
        (Rung::Versioned, Release::V0_9 | Release::V0_54 | Release::V0_62)
        | (Rung::Lock, Release::V0_9) => "versioned",
        (Rung::Versioned | Rung::Lock, _) => "lock",
    };
    let path = samples().join(format!("{version}-{rung}.Dockerfile"));
    let text = std::fs::read_to_string(path).unwrap();
    text.replace("BASE_IMAGE", base)
}

/// Folder of the rendered Dockerfiles, which a script takes out of the released packages once.
fn samples() -> PathBuf {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../hack/templates");
    let output = Command::new(script).arg("dockerfiles").output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "hack/templates: {errors}");
    PathBuf::from(String::from_utf8(output.stdout).unwrap().trim())
}

/// Build context of a Dockerfile with a few files of code, as [`context_of`] makes it.
pub fn context(dockerfile: &str, seconds: u64) -> String {
    let entries = [
        (".", None),
        ("./Dockerfile", Some(dockerfile)),
        ("./code", None),
        ("./code/openhands", None),
        ("./code/openhands/__init__.py", Some("")),
        ("./code/poetry.lock", Some("lock\n")),
        ("./code/pyproject.toml", Some("[p]\n")),
    ];
    context_of(&entries, seconds)
}

/// Build context with these paths and their contents, directories without: base64 text of a
/// compressed pax archive. `seconds` is the time of all entries, which differs at every call of a
/// client.
pub fn context_of(entries: &[(&str, Option<&str>)], seconds: u64) -> String {
    let mut tar = Builder::new(Vec::new());
    for &(path, content) in entries {
        let mtime = format!("{seconds}.1234567");
        tar.append_pax_extensions([("mtime", mtime.as_bytes())])
            .unwrap();
        let mut header = Header::new_ustar();
        let (kind, mode) = match content {
            Some(_) => (EntryType::Regular, 0o644),
            None => (EntryType::Directory, 0o755),
        };
        let content = content.unwrap_or_default();
        header.set_entry_type(kind);
        header.set_mode(mode);
        header.set_mtime(seconds);
        header.set_size(content.len() as u64);
        header.set_path(path).unwrap();
        header.set_cksum();
        tar.append(&header, content.as_bytes()).unwrap();
    }
    encode(&tar.into_inner().unwrap())
}

/// Compresses an archive and makes text of it.
pub fn encode(tar: &[u8]) -> String {
    let mut compressed = GzEncoder::new(Vec::new(), Compression::fast());
    compressed.write_all(tar).unwrap();
    STANDARD.encode(compressed.finish().unwrap())
}

/// Form with the parts of a build, in the client's order. Its type is [`FORM_TYPE`].
pub fn form(context: &str, target: &str, tags: &[&str]) -> Vec<u8> {
    let tags = tags.iter().map(|tag| ("tags", *tag));
    let parts = [("context", context), ("target_image", target)];
    form_of(parts.into_iter().chain(tags))
}

/// Form with any parts.
pub fn form_of<'a>(parts: impl IntoIterator<Item = (&'a str, &'a str)>) -> Vec<u8> {
    let part = |(name, content): (&str, &str)| {
        let file = match name {
            "context" => "; filename=\"context.tar.gz\"\r\nContent-Type: application/x-tar",
            _ => "",
        };
        let head = format!("Content-Disposition: form-data; name=\"{name}\"{file}");
        format!("--{BOUNDARY}\r\n{head}\r\n\r\n{content}\r\n")
    };
    let end = format!("--{BOUNDARY}--\r\n");
    let form: String = parts.into_iter().map(part).chain([end]).collect();
    form.into_bytes()
}
