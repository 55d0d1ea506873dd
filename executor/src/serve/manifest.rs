//! Plugins of users' own: a folder with a `plugin.yaml` (`docs/plugins.md`, "Your own").
//!
//! A manifest says how a program is started, watched and reached. Unknown fields are refused: a
//! misspelt one must not be ignored.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read as _};
use std::num::NonZeroU16;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Deserialize;

const FILE: &str = "plugin.yaml";
const MAX_BYTES: u64 = 64 << 10;
const MAX_VERSION_CHARS: usize = 64;
const MAX_READINESS_SECONDS: u64 = 3600;

#[derive(Debug, thiserror::Error)]
pub(super) enum ManifestError {
    #[error("cannot read {path}: {cause}", path = .0.display(), cause = .1)]
    Read(PathBuf, #[source] io::Error),
    #[error("{FILE} exceeds {MAX_BYTES} bytes")]
    TooLarge,
    #[error("{FILE}: {0}")]
    Syntax(#[from] serde_yaml::Error),
    #[error("{FILE}: {0}")]
    Invalid(&'static str),
    #[error("{FILE}: name is {name:?}, but that of the folder is {folder:?}")]
    Name { name: String, folder: String },
    #[error("{FILE}: port {port} is that of {owner}")]
    Port { port: u16, owner: String },
    #[error("the name {0} leads to a port of the sandbox")]
    Reserved(String),
}

/// Content of a `plugin.yaml`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Manifest {
    name: String,
    pub(super) version: String,
    /// Program and arguments.
    pub(super) command: Vec<String>,
    /// Below the folder of the plugin unless absolute. Default: that folder.
    #[serde(default)]
    working_dir: PathBuf,
    #[serde(default)]
    pub(super) user: User,
    /// Variables of the program.
    #[serde(default)]
    pub(super) env: BTreeMap<String, String>,
    /// Names of variables that must be set.
    #[serde(default)]
    pub(super) requires: Vec<String>,
    /// Variables for commands and cells of the sandbox.
    #[serde(default)]
    pub(super) provides: BTreeMap<String, String>,
    pub(super) port: Option<NonZeroU16>,
    #[serde(default)]
    readiness: Readiness,
    #[serde(default)]
    pub(super) restart: Restart,
    #[serde(default)]
    pub(super) access: Access,
    pub(super) mcp: Option<ToolServer>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum User {
    /// The user of the shell.
    #[default]
    Sandbox,
    Root,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
pub(super) enum Restart {
    #[default]
    Always,
    OnFailure,
    Never,
}

/// Requests that the plugin serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Access {
    /// Those with the session key of the sandbox.
    #[default]
    SessionKey,
    Public,
}

/// Sign that the program can serve.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct Readiness {
    /// Absent: the port accepts a connection.
    path: Option<String>,
    timeout_seconds: u64,
}

impl Default for Readiness {
    fn default() -> Self {
        Self {
            path: None,
            timeout_seconds: 60,
        }
    }
}

/// An MCP server on the port.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ToolServer {
    pub(super) path: String,
}

/// Sign that a server can serve, and the time that it has until then.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ReadinessCheck {
    pub(super) path: Option<String>,
    pub(super) limit: Duration,
}

impl Manifest {
    pub(super) fn read(folder: &Path, name: &str) -> Result<Self, ManifestError> {
        let path = folder.join(FILE);
        let failed = |error| ManifestError::Read(path.clone(), error);
        let mut text = String::new();
        let file = File::open(&path).map_err(failed)?;
        let read = file.take(MAX_BYTES + 1).read_to_string(&mut text);
        if read.map_err(failed)? as u64 > MAX_BYTES {
            return Err(ManifestError::TooLarge);
        }
        let manifest: Self = serde_yaml::from_str(&text)?;
        if manifest.name != name {
            let (name, folder) = (manifest.name, name.to_owned());
            return Err(ManifestError::Name { name, folder });
        }
        manifest.check().map_err(ManifestError::Invalid)?;
        if manifest.user == User::Root {
            let folder = folder.canonicalize().map_err(failed)?;
            for path in [&folder, &path] {
                check_owner(path, false)?;
            }
            for parent in folder.ancestors().skip(1) {
                check_owner(parent, true)?;
            }
        }
        Ok(manifest)
    }

    fn check(&self) -> Result<(), &'static str> {
        let is_path = |path: &String| path.starts_with('/') && path.parse::<http::Uri>().is_ok();
        let needs_port = self.readiness.path.is_some() || self.mcp.is_some();
        let given = [&self.env, &self.provides].into_iter().flatten();
        let mut names = self
            .requires
            .iter()
            .chain(given.clone().map(|(name, _)| name));
        let mut texts = self.command.iter().chain(given.map(|(_, value)| value));
        let mut paths = self.readiness.path.iter();
        let mut paths = paths
            .by_ref()
            .chain(self.mcp.as_ref().map(|tools| &tools.path));
        let rules = [
            (
                (1..=MAX_VERSION_CHARS).contains(&self.version.chars().count()),
                "version must have 1 to 64 characters",
            ),
            (
                self.command
                    .first()
                    .is_some_and(|program| !program.is_empty()),
                "command is empty",
            ),
            (
                names.all(|name| is_variable(name)),
                "a variable has an invalid name",
            ),
            (
                texts.all(|text| !text.contains('\0')),
                "a text has a zero byte",
            ),
            (
                !needs_port || self.port.is_some(),
                "readiness.path and mcp need a port",
            ),
            (
                paths.all(is_path),
                "a path must begin with a slash and be part of a URL",
            ),
            (
                (1..=MAX_READINESS_SECONDS).contains(&self.readiness.timeout_seconds),
                "readiness.timeoutSeconds must be between 1 and 3600",
            ),
        ];
        let broken = rules.into_iter().find(|(is_kept, _)| !is_kept);
        broken.map_or(Ok(()), |(_, rule)| Err(rule))
    }

    pub(super) fn working_dir(&self, folder: &Path) -> PathBuf {
        folder.join(&self.working_dir)
    }

    /// Absent without a port: the program is ready as soon as it runs.
    pub(super) fn readiness(&self) -> Option<ReadinessCheck> {
        self.port?;
        Some(ReadinessCheck {
            path: self.readiness.path.clone(),
            limit: Duration::from_secs(self.readiness.timeout_seconds),
        })
    }
}

fn is_variable(name: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    !name.is_empty()
        && !name.starts_with(|first: char| first.is_ascii_digit())
        && name.bytes().all(inner)
}

/// Requires that root alone can write, as `sudo` does: a plugin must not give the agent root. Others may
/// write to a `shared` directory whose entries they cannot replace, such as `/tmp`.
fn check_owner(path: &Path, shared: bool) -> Result<(), ManifestError> {
    let found = path.metadata();
    let found = found.map_err(|error| ManifestError::Read(path.to_owned(), error))?;
    let is_sticky = found.mode() & 0o1000 != 0;
    if found.uid() == 0 && (found.mode() & 0o022 == 0 || shared && is_sticky) {
        return Ok(());
    }
    let rule = "with user root, the file, its folder and all above must belong to root and be \
                writable by root alone";
    Err(ManifestError::Invalid(rule))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEAST: &str = "{name: a, version: '1', command: [x]";

    /// Error of a manifest; empty if it has none.
    fn error(name: &str, text: &str) -> String {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join(FILE), text).unwrap();
        let read = Manifest::read(folder.path(), name);
        read.err()
            .map_or_else(String::new, |error| error.to_string())
    }

    #[test]
    fn broken_manifests_say_why() {
        for (more, why) in [
            (", prot: 1}", "unknown field `prot`"),
            (", port: 0}", "port"),
            (
                ", readiness: {path: /}}",
                "readiness.path and mcp need a port",
            ),
            (
                ", port: 1, readiness: {path: x}}",
                "must begin with a slash",
            ),
            (", port: 1, mcp: {}}", "missing field `path`"),
            (", readiness: {timeoutSeconds: 0}}", "timeoutSeconds"),
            (", env: {A=: b}}", "invalid name"),
            (", requires: ['']}", "invalid name"),
            (", restart: sometimes}", "unknown variant"),
            (", user: admin}", "unknown variant"),
            ("", "plugin.yaml: "),
        ] {
            let error = error("a", &format!("{LEAST}{more}"));
            assert!(error.contains(why), "{more}: {error}");
        }
        let least = format!("{LEAST}}}");
        let empty = "{name: a, version: '1', command: []}";
        let long = format!("{least}{}", " ".repeat(64 << 10));
        for (name, text, why) in [
            (
                "b",
                &*least,
                "name is \"a\", but that of the folder is \"b\"",
            ),
            ("a", empty, "command is empty"),
            ("a", &long, "exceeds 65536 bytes"),
        ] {
            assert!(error(name, text).contains(why), "{why}");
        }
        assert_eq!(error("a", &least), "");
    }

    #[test]
    fn root_needs_a_folder_of_its_own() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::set_permissions(&folder, std::os::unix::fs::PermissionsExt::from_mode(0o777))
            .unwrap();
        let error = check_owner(folder.path(), true).unwrap_err();
        assert!(error.to_string().contains("writable by root alone"));
    }
}
