//! First step: the build context, and the base image if its registry wants credentials.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use flate2::read::GzDecoder;
use images::manifest::{self, Document};
use images::{Reference, fetch_layout};
use tar::Archive;

use crate::{RegistryAccess, StepError, directory};

/// Bytes of a context after decompression: the limit of the gateway, and room for headers.
pub(crate) const MAX_CONTEXT_BYTES: u64 = 512 << 20;

/// Flags of the step.
#[derive(Debug, Clone, clap::Args)]
pub struct FetchArgs {
    /// Build context in its registry, by its digest.
    #[arg(long, value_name = "REFERENCE")]
    pub context: Reference,
    /// Base image, by its digest. Default: the builder pulls it.
    #[arg(long, value_name = "REFERENCE")]
    pub base: Option<Reference>,
    /// Existing directory for both.
    #[arg(long)]
    pub directory: PathBuf,
    #[command(flatten)]
    pub registries: RegistryAccess,
}

impl FetchArgs {
    /// Writes the content of [`directory`].
    pub async fn run(&self) -> Result<(), StepError> {
        let (registry, credentials) = self.registries.open().await?;
        let (descriptor, bytes) = registry.manifest(&self.context, &credentials).await?;
        let not_a_context = || StepError::Context(self.context.whole());
        let parsed = manifest::parse(&bytes, Some(&descriptor.media_type));
        let Ok(Document::Manifest(manifest)) = parsed else {
            return Err(not_a_context());
        };
        let [layer] = manifest.layers.as_slice() else {
            return Err(not_a_context());
        };
        let archive = self.directory.join("context.tar.gz");
        let download = registry.download(&self.context, layer, &credentials, &archive, |_| {});
        download.await?;
        let to = self.directory.join(directory::CONTEXT);
        let unpacked = tokio::task::spawn_blocking(move || unpack(&archive, &to)).await;
        unpacked.unwrap_or_else(|error| Err(StepError::Unpack(io::Error::other(error))))?;
        let settings = self.directory.join(directory::BUILDER_CONFIG);
        let written = tokio::fs::write(settings, self.builder_config()).await;
        written.map_err(StepError::Write)?;
        if let Some(base) = &self.base {
            let to = self.directory.join(directory::BASE);
            fetch_layout(&registry, base, &credentials, &to).await?;
        }
        Ok(())
    }

    /// The registries that the builder reaches over HTTP.
    fn builder_config(&self) -> String {
        let insecure = self.registries.insecure.iter();
        let insecure = insecure.filter(|host| !host.is_empty() && !host.contains(['"', '\\']));
        let tables = insecure.map(|host| format!("[registry.\"{host}\"]\nhttp = true\n"));
        tables.collect::<Vec<_>>().concat()
    }
}

/// Unpacks an archive of the gateway, and removes it. No entry is written outside of `to`.
fn unpack(archive: &Path, to: &Path) -> Result<(), StepError> {
    let unpack = || {
        let plain = GzDecoder::new(File::open(archive)?).take(MAX_CONTEXT_BYTES + 1);
        let mut entries = Archive::new(plain);
        entries.unpack(to)?;
        let left = entries.into_inner().limit();
        std::fs::remove_file(archive)?;
        Ok(left)
    };
    match unpack().map_err(StepError::Unpack)? {
        0 => Err(StepError::LargeContext),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use images::{LayerWriter, Owner};
    use tar::EntryType;

    use super::*;

    #[test]
    fn context_is_unpacked_with_modes_and_links_and_nothing_outside() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("context.tar.gz");
        let owner = Owner { uid: 0, gid: 0 };
        let mut writer = LayerWriter::new(File::create(&path).unwrap(), owner);
        writer
            .file(b"Dockerfile", 0o644, 6, &b"FROM a"[..])
            .unwrap();
        writer.directory(b"code", 0o755).unwrap();
        writer.file(b"code/run", 0o755, 1, &b"#"[..]).unwrap();
        writer
            .link(EntryType::Symlink, b"code/link", b"run")
            .unwrap();
        writer
            .link(EntryType::Link, b"code/hard", b"code/run")
            .unwrap();
        writer.link(EntryType::Symlink, b"out", b"/tmp").unwrap();
        writer.finish().unwrap();
        let to = directory.path().join("context");
        unpack(&path, &to).unwrap();
        let mode = to.join("code/run").metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o755);
        assert_eq!(std::fs::read(to.join("code/link")).unwrap(), b"#");
        assert_eq!(std::fs::read(to.join("code/hard")).unwrap(), b"#");
        assert!(!path.exists());

        let mut writer = LayerWriter::new(File::create(&path).unwrap(), owner);
        writer
            .link(
                EntryType::Symlink,
                b"out2",
                directory.path().as_os_str().as_encoded_bytes(),
            )
            .unwrap();
        writer.file(b"out2/planted", 0o644, 1, &b"x"[..]).unwrap();
        writer.finish().unwrap();
        assert!(unpack(&path, &to).is_err());
        assert!(!directory.path().join("planted").exists());
    }
}
