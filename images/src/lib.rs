//! OCI images on one machine: registries, a content store and unpacked layers.

mod append;
mod archive;
mod config;
mod credentials;
mod digest;
mod inspect;
mod install;
mod layer;
mod layer_view;
mod layout;
pub mod manifest;
mod progress;
mod pull;
mod push;
mod registry;
mod remove_tree;
mod store;
mod unpack;

pub use append::{Addition, AppendError, Appended, Parent};
pub use archive::{LoadError, load, save};
pub use config::{ImageConfig, Process};
pub use credentials::{Credentials, CredentialsError};
pub use digest::{Digest, DigestError, Hasher};
pub use inspect::{InspectError, Inspection, inspect};
pub use install::InstallError;
pub use layer::{Layer, LayerWriter, Owner, compress};
pub use layout::{LayoutError, Pushed, fetch_layout, push_layout};
pub use manifest::{Descriptor, Document, ImageManifest, ManifestError, Platform};
pub use oci_spec::distribution::Reference;
pub use progress::Progress;
pub use pull::{Pull, PullError, Puller};
pub use push::{PushError, push};
pub use registry::{Content, Registry, RegistryError, RegistrySettings};
pub use remove_tree::remove_tree;
pub use store::{Freed, Image, ImageStore, StoreError, StoredImage};
pub use unpack::{Limits, UnpackError, UnpackedLayer, unpack};
