//! Plugins of users' own that were chosen by `--plugins`: where their folders are, and what they give
//! to others (`docs/plugins.md`, "Your own").

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use super::manifest::{Manifest, ManifestError};
use super::plugin_choice::{Choice, ChoiceError};
use crate::cli::ServeOptions;

/// Folder of the plugins of an image.
const FOLDER: &str = "/opt/sandbox/plugins";
/// A name is part of a DNS label: `NAME-«id»`.
const MAX_NAME_CHARS: usize = 40;
const MAX_PLUGINS: usize = 32;

/// A plugin of the user that was chosen: its manifest, or the reason why there is none.
#[derive(Debug)]
pub(super) struct OwnPlugin {
    pub(super) name: String,
    pub(super) folder: PathBuf,
    pub(super) manifest: Result<Manifest, ManifestError>,
    /// Address of servers in the sandbox.
    host: IpAddr,
}

impl OwnPlugin {
    /// Reads the manifests of all chosen plugins that are not built in.
    ///
    /// # Errors
    /// If a plugin is unknown, or has an option that it does not take.
    pub(super) fn read_all(options: &ServeOptions) -> Result<Vec<Self>, ChoiceError> {
        let mut found: Vec<Self> = Vec::new();
        for choice in options.choices() {
            if choice.is_built_in() {
                choice.check_options()?;
            } else if found.iter().all(|other| other.name != choice.name) {
                found.push(Self::read(options, &choice)?);
            }
        }
        if found.len() > MAX_PLUGINS {
            return Err(ChoiceError::TooMany(MAX_PLUGINS));
        }
        Ok(found)
    }

    fn read(options: &ServeOptions, choice: &Choice<'_>) -> Result<Self, ChoiceError> {
        let name = choice.name;
        let parents = std::env::split_paths(&options.plugin_path);
        let mut folders = parents
            .filter(|parent| parent.is_absolute())
            .chain([FOLDER.into()])
            .map(|parent| parent.join(name));
        // A name with slashes could lead to any folder.
        let folder = folders.find(|folder| is_name(name) && folder.is_dir());
        let folder = folder.ok_or_else(|| ChoiceError::Unknown(name.to_owned()))?;
        choice.check_options()?;
        Ok(Self {
            name: name.to_owned(),
            manifest: Manifest::read(&folder, name),
            folder,
            host: options.bind_address.unwrap_or(Ipv4Addr::LOCALHOST.into()),
        })
    }

    /// Address of the server of the plugin, if it has one.
    pub(super) fn address(&self) -> Option<SocketAddr> {
        let port = self.manifest.as_ref().ok()?.port?;
        Some(SocketAddr::new(self.host, port.get()))
    }

    /// Variables that tell where to listen.
    pub(super) fn listening_variables(&self) -> Vec<(&'static str, String)> {
        let port = self
            .address()
            .map(|address| ("PORT", address.port().to_string()));
        [("HOST", self.host.to_string())]
            .into_iter()
            .chain(port)
            .collect()
    }

    /// Variables for commands and cells. `${HOST}` and `${PORT}` are filled in.
    pub(super) fn provided(&self) -> Vec<(String, String)> {
        let provided = self.manifest.iter().flat_map(|manifest| &manifest.provides);
        let given = self.listening_variables();
        let fill = |text: &String| {
            given.iter().fold(text.clone(), |text, (name, value)| {
                text.replace(&format!("${{{name}}}"), value)
            })
        };
        provided
            .map(|(name, text)| (name.clone(), fill(text)))
            .collect()
    }

    /// URL of the tool server of the plugin, if it is one.
    pub(super) fn tool_server(&self) -> Option<String> {
        let tools = self.manifest.as_ref().ok()?.mcp.as_ref()?;
        Some(format!("http://{}{}", self.address()?, tools.path))
    }
}

/// `[a-z]([-a-z0-9]*[a-z0-9])?`, as the names of ports.
fn is_name(text: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    text.len() <= MAX_NAME_CHARS
        && text.starts_with(|first: char| first.is_ascii_lowercase())
        && !text.ends_with('-')
        && text.bytes().all(inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_ports() {
        for name in ["a", "a-1", &"a".repeat(MAX_NAME_CHARS)] {
            assert!(is_name(name), "{name}");
        }
        for name in ["", "A", "1", "a-", "a_b", "a/b", "..", &"a".repeat(41)] {
            assert!(!is_name(name), "{name}");
        }
    }
}
