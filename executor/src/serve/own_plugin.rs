//! Plugins of users' own that were chosen by `--plugins`: where their folders are, and what they give
//! to others (`docs/plugins.md`, "Your own").

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use crds::contract::port;

use super::manifest::{Manifest, ManifestError};
use super::plugin_choice::{Choice, ChoiceError};
use crate::cli::ServeOptions;

/// Folder of the plugins of an image.
const FOLDER: &str = "/opt/sandbox/plugins";
/// A name is part of a DNS label: `NAME-«id»`.
const MAX_NAME_CHARS: usize = 40;
const MAX_PLUGINS: usize = 32;
/// Names that the gateway forwards to ports (`docs/proxy.md`).
const RESERVED_NAMES: [&str; 3] = ["runtime", "work-1", "work-2"];
const WORK_PORTS: [u16; 2] = [port::WORK_1, port::WORK_2];

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
                let mut plugin = Self::read(options, &choice)?;
                plugin.reserve_port(options, &found);
                found.push(plugin);
            }
        }
        if found.len() > MAX_PLUGINS {
            return Err(ChoiceError::TooMany(MAX_PLUGINS));
        }
        Ok(found)
    }

    fn read(options: &ServeOptions, choice: &Choice<'_>) -> Result<Self, ChoiceError> {
        let name = choice.name;
        // A name with slashes could lead to any folder.
        if !is_name(name) {
            return Err(ChoiceError::Unknown(name.to_owned()));
        }
        let parents = std::env::split_paths(&options.plugin_path);
        let parents = parents.filter(|parent| parent.is_absolute());
        let parents: Vec<PathBuf> = parents.chain([FOLDER.into()]).collect();
        let mut folders = parents.iter().map(|parent| parent.join(name));
        let folder = folders.find(|folder| folder.is_dir()).ok_or_else(|| {
            let directories = parents.iter().map(|parent| parent.to_string_lossy());
            ChoiceError::NoFolder {
                name: name.to_owned(),
                directories: directories.collect::<Vec<_>>().join(", "),
            }
        })?;
        choice.check_options()?;
        let manifest = if RESERVED_NAMES.contains(&name) {
            Err(ManifestError::Reserved(name.to_owned()))
        } else {
            Manifest::read(&folder, name)
        };
        Ok(Self {
            name: name.to_owned(),
            manifest,
            folder,
            host: options.bind_address.unwrap_or(Ipv4Addr::LOCALHOST.into()),
        })
    }

    /// Replaces the manifest by an error if its port is that of another server: requests to one would
    /// reach the other.
    fn reserve_port(&mut self, options: &ServeOptions, others: &[Self]) {
        let Some(port) = self.address().map(|address| address.port()) else {
            return;
        };
        let of_sandbox = (port == options.port).then(|| "the server of the sandbox".to_owned());
        let works = WORK_PORTS.contains(&port).then(|| "a work port".to_owned());
        let same = |other: &&Self| other.address() == self.address();
        let of_plugin = others.iter().find(same);
        let of_plugin = of_plugin.map(|other| format!("the plugin {}", other.name));
        if let Some(owner) = of_sandbox.or(works).or(of_plugin) {
            self.manifest = Err(ManifestError::Port { port, owner });
        }
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
