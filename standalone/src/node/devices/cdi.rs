//! CDI specifications: the device nodes, files and variables that make up a device of this machine,
//! as its driver describes them. Of version 0.3 and later, in JSON or YAML.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::Deserialize;
use serde_json::Value;

use crate::node::mount::Mount;

/// Size of a specification.
const MAX_BYTES: u64 = 4 << 20;
/// Name by which specifications give a container every device of a kind.
const ALL: &str = "all";

#[derive(Debug, thiserror::Error)]
enum CdiError {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error("larger than {MAX_BYTES} bytes")]
    Size,
    #[error(transparent)]
    Syntax(#[from] serde_yaml::Error),
    #[error("cdiVersion {0:?} must be from 0.3.0 to 1.x")]
    Version(String),
    #[error("kind {0:?} must have the form vendor.domain/class")]
    Kind(String),
    #[error("variable {0:?} must have the form NAME=VALUE")]
    Variable(String),
    #[error("path {0:?} must be absolute")]
    Path(PathBuf),
    #[error("{0} are not supported")]
    Unsupported(String),
}

/// Usable specifications, and why others are not.
#[derive(Debug, Default)]
pub(super) struct CdiSpecs {
    /// Devices that are distinct, by kind.
    pub(super) kinds: BTreeMap<String, Vec<Arc<Device>>>,
    /// Sentence by kind.
    refused: BTreeMap<String, String>,
    directories: Vec<PathBuf>,
}

/// Additions of a device to a container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Device {
    pub name: String,
    pub environment: Vec<(String, String)>,
    pub mounts: Vec<Mount>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Spec {
    cdi_version: String,
    kind: String,
    devices: Vec<SpecDevice>,
    #[serde(default)]
    container_edits: Edits,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct SpecDevice {
    name: String,
    #[serde(default)]
    container_edits: Edits,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Edits {
    env: Vec<String>,
    device_nodes: Vec<DeviceNode>,
    mounts: Vec<FileMount>,
    #[serde(flatten)]
    others: BTreeMap<String, Value>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct DeviceNode {
    path: PathBuf,
    host_path: Option<PathBuf>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct FileMount {
    host_path: PathBuf,
    container_path: PathBuf,
    #[serde(default)]
    options: Vec<String>,
}

impl CdiSpecs {
    pub(super) fn read(directories: &[PathBuf]) -> Self {
        let mut specs = Self {
            directories: directories.to_vec(),
            ..Self::default()
        };
        for file in directories.iter().flat_map(|path| spec_files(path)) {
            match parse(&file) {
                Ok(spec) => specs.add(&file, &spec),
                Err(error) => {
                    tracing::warn!(file = %file.display(), %error, "CDI specification not read");
                }
            }
        }
        specs.kinds.values_mut().for_each(retain_distinct);
        specs
    }

    fn add(&mut self, file: &Path, spec: &Spec) {
        for device in &spec.devices {
            match Device::new(device, &spec.container_edits) {
                Ok(device) => {
                    let known = self.kinds.entry(spec.kind.clone()).or_default();
                    known.retain(|other| other.name != device.name);
                    known.push(Arc::new(device));
                }
                Err(error) => {
                    let (file, name) = (file.display(), &device.name);
                    let sentence = format!("{file} is not used: device {name:?}: {error}.");
                    tracing::warn!("CDI specification {sentence}");
                    self.refused.insert(spec.kind.clone(), sentence);
                }
            }
        }
    }

    /// Sentence about a kind without devices.
    pub(super) fn why_unknown(&self, kind: &str) -> Option<String> {
        if self
            .kinds
            .get(kind)
            .is_some_and(|devices| !devices.is_empty())
        {
            return None;
        }
        let directories = self
            .directories
            .iter()
            .map(|path| path.display().to_string());
        let directories: Vec<_> = directories.collect();
        let missing = || {
            let directories = directories.join(" and ");
            format!("No CDI specification in {directories} has devices of this kind.")
        };
        Some(self.refused.get(kind).cloned().unwrap_or_else(missing))
    }
}

impl Device {
    fn new(device: &SpecDevice, common: &Edits) -> Result<Self, CdiError> {
        let mut made = Self {
            name: device.name.clone(),
            environment: Vec::new(),
            mounts: Vec::new(),
        };
        for edits in [common, &device.container_edits] {
            made.add(edits)?;
        }
        Ok(made)
    }

    fn add(&mut self, edits: &Edits) -> Result<(), CdiError> {
        let is_empty =
            |value: &Value| value.is_null() || value.as_array().is_some_and(Vec::is_empty);
        if let Some((field, _)) = edits.others.iter().find(|(_, value)| !is_empty(value)) {
            return Err(CdiError::Unsupported(field.clone()));
        }
        for variable in &edits.env {
            let pair = variable
                .split_once('=')
                .filter(|(name, _)| !name.is_empty());
            let (name, value) = pair.ok_or_else(|| CdiError::Variable(variable.clone()))?;
            self.environment.push((name.to_owned(), value.to_owned()));
        }
        for node in &edits.device_nodes {
            let from = node.host_path.as_ref().unwrap_or(&node.path);
            self.mount(from, &node.path, "--dev-bind")?;
        }
        for file in &edits.mounts {
            let is_read_only = file.options.iter().any(|option| option == "ro");
            let bind = if is_read_only { "--ro-bind" } else { "--bind" };
            self.mount(&file.host_path, &file.container_path, bind)?;
        }
        Ok(())
    }

    fn mount(&mut self, from: &Path, to: &Path, bind: &'static str) -> Result<(), CdiError> {
        for path in [from, to] {
            if !path.is_absolute() {
                return Err(CdiError::Path(path.to_owned()));
            }
        }
        let (from, to) = (from.to_owned(), to.to_owned());
        self.mounts.push(Mount::Host { from, to, bind });
        Ok(())
    }

    /// Device nodes of the host, which tell whether two names mean the same device.
    fn nodes(&self) -> Vec<&Path> {
        let nodes = self.mounts.iter().filter_map(|mount| match mount {
            Mount::Host { from, bind, .. } if *bind == "--dev-bind" => Some(from.as_path()),
            _ => None,
        });
        nodes.collect()
    }
}

/// Drops other names of the same device, such as its serial number, and the name of all devices.
fn retain_distinct(devices: &mut Vec<Arc<Device>>) {
    let mut distinct: Vec<Arc<Device>> = Vec::new();
    for device in devices.drain(..).filter(|device| device.name != ALL) {
        let nodes = device.nodes();
        let is_known = |known: &Arc<Device>| !nodes.is_empty() && known.nodes() == nodes;
        if !distinct.iter().any(is_known) {
            distinct.push(device);
        }
    }
    *devices = distinct;
}

/// Specifications in a directory, in the order of their names.
fn spec_files(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let mut files: Vec<_> = entries.map(|entry| entry.path()).collect();
    let is_spec = |path: &PathBuf| {
        let extension = path.extension().and_then(|extension| extension.to_str());
        matches!(extension, Some("json" | "yaml" | "yml"))
    };
    files.retain(is_spec);
    files.sort();
    files
}

/// JSON is YAML, too.
fn parse(file: &Path) -> Result<Spec, CdiError> {
    let mut text = String::new();
    let opened = File::open(file)?.take(MAX_BYTES + 1);
    if io::BufReader::new(opened).read_to_string(&mut text)? as u64 > MAX_BYTES {
        return Err(CdiError::Size);
    }
    let spec: Spec = serde_yaml::from_str(&text)?;
    let mut numbers = spec.cdi_version.split('.').map(str::parse::<u32>);
    let is_known = match (numbers.next(), numbers.next()) {
        (Some(Ok(0)), Some(Ok(minor))) => minor >= 3,
        (Some(Ok(1)), Some(Ok(_))) => true,
        _ => false,
    };
    if !is_known {
        return Err(CdiError::Version(spec.cdi_version));
    }
    let parts = spec.kind.split_once('/');
    let is_kind = |part: &str| !part.is_empty() && !part.contains('/');
    if !parts.is_some_and(|(vendor, class)| is_kind(vendor) && is_kind(class)) {
        return Err(CdiError::Kind(spec.kind));
    }
    Ok(spec)
}
