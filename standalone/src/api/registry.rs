//! Registry of resource types. Code below the request parser uses a [`Kind`] and never compares
//! resource names, so that one entry (or CRD) adds a resource.

mod builtin;
mod custom;
mod event;

use std::{borrow::Cow, sync::Arc};

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use serde_json::Value;

use super::{
    error::{ApiError, QualifiedName},
    schema::Schema,
    table::Column,
};

/// Storage shard of namespaces, which are the first kind.
pub(crate) const NAMESPACES: usize = 0;

/// Resource type.
#[derive(Debug)]
pub(crate) struct Kind {
    pub(crate) group: String,
    pub(crate) version: String,
    pub(crate) plural: String,
    pub(crate) singular: String,
    /// `Pod`, as in the field `kind`.
    pub(crate) name: String,
    pub(crate) short_names: Vec<String>,
    pub(crate) categories: Vec<String>,
    pub(crate) namespaced: bool,
    pub(crate) read_only: bool,
    /// True if the status is a subresource.
    pub(crate) status: bool,
    pub(crate) scale: Option<Scale>,
    /// Index of the storage shard. Two kinds may share one.
    pub(crate) shard: usize,
    pub(crate) model: ObjectValidation,
    pub(crate) columns: Vec<Column>,
    pub(crate) alias: Option<Alias>,
    /// Paths that field selectors may use.
    pub(crate) selectable: Vec<String>,
}

#[derive(Debug)]
pub(crate) enum ObjectValidation {
    /// By the Rust type: fields it does not have are unknown.
    Typed(fn(&Value) -> Result<Value, serde_json::Error>),
    /// By the schema of a CRD.
    Schema(Box<Schema>),
}

/// Second representation of objects that are stored as another kind.
#[derive(Debug)]
pub(crate) struct Alias {
    pub(crate) from_stored: fn(&Value) -> Value,
    pub(crate) to_stored: fn(&Value) -> Value,
}

/// Fields that `/scale` reads and writes: paths without the leading dot.
#[derive(Debug)]
pub(crate) struct Scale {
    pub(crate) spec: Vec<String>,
    pub(crate) status: Vec<String>,
    pub(crate) selector: Vec<String>,
}

/// `group/version`, or the version of the core group.
pub(crate) fn api_version(group: &str, version: &str) -> String {
    if group.is_empty() {
        version.to_owned()
    } else {
        format!("{group}/{version}")
    }
}

impl Kind {
    pub(crate) fn api_version(&self) -> String {
        api_version(&self.group, &self.version)
    }

    /// `sandboxes.openhands.dev`, for messages about an object.
    pub(crate) fn resource_group(&self) -> QualifiedName {
        QualifiedName {
            group: self.group.clone(),
            item: self.plural.clone(),
        }
    }

    /// `Sandbox.openhands.dev`, for messages about a type.
    pub(crate) fn kind_group(&self) -> QualifiedName {
        QualifiedName {
            group: self.group.clone(),
            item: self.name.clone(),
        }
    }

    pub(crate) fn not_found(&self, name: &str) -> ApiError {
        ApiError::NotFound {
            of: self.resource_group(),
            name: name.to_owned(),
        }
    }

    pub(crate) fn conflict(&self, name: &str, message: impl Into<String>) -> ApiError {
        ApiError::Conflict {
            of: self.resource_group(),
            name: name.to_owned(),
            message: message.into(),
        }
    }

    pub(crate) fn failed_precondition(
        &self,
        name: &str,
        field: &str,
        sent: &str,
        found: &str,
    ) -> ApiError {
        let message = format!(
            "Precondition failed: {field} in precondition: {sent}, {field} in object meta: {found}"
        );
        self.conflict(name, message)
    }

    /// The object in the representation of this kind.
    pub(crate) fn to_own<'a>(&self, stored: &'a Value) -> Cow<'a, Value> {
        match &self.alias {
            Some(alias) => Cow::Owned((alias.from_stored)(stored)),
            None => Cow::Borrowed(stored),
        }
    }

    /// The object in its storage representation.
    pub(crate) fn to_stored(&self, object: Value) -> Value {
        match &self.alias {
            Some(alias) => (alias.to_stored)(&object),
            None => object,
        }
    }

    pub(crate) fn is(&self, group: &str, plural: &str) -> bool {
        self.group == group && self.plural == plural
    }

    pub(crate) fn is_pod(&self) -> bool {
        self.is("", "pods")
    }

    pub(crate) fn schema(&self) -> Option<&Schema> {
        match &self.model {
            ObjectValidation::Schema(schema) => Some(schema),
            ObjectValidation::Typed(_) => None,
        }
    }
}

/// All kinds, and the names of the storage shards.
#[derive(Debug)]
pub(crate) struct Registry {
    kinds: Vec<Arc<Kind>>,
    shards: Vec<String>,
}

impl Registry {
    pub(crate) fn new(definitions: &[CustomResourceDefinition]) -> Self {
        let mut registry = Self {
            kinds: Vec::new(),
            shards: Vec::new(),
        };
        let custom = definitions.iter().flat_map(custom::kinds);
        let kinds = builtin::kinds().into_iter().chain(custom);
        kinds
            .chain([event::kind()])
            .for_each(|kind| registry.add(kind));
        registry
    }

    fn add(&mut self, mut kind: Kind) {
        let name = match kind.alias {
            Some(_) => kind.plural.clone(),
            None => kind.resource_group().qualified(),
        };
        let known = self.shards.iter().position(|shard| *shard == name);
        kind.shard = known.unwrap_or_else(|| {
            self.shards.push(name);
            self.shards.len() - 1
        });
        self.kinds.push(Arc::new(kind));
    }

    /// Names of the shards: `pods`, `sandboxes.openhands.dev`, …
    pub(crate) fn shards(&self) -> &[String] {
        &self.shards
    }

    pub(crate) fn find(&self, group: &str, version: &str, plural: &str) -> Option<&Arc<Kind>> {
        let mut kinds = self.kinds.iter();
        kinds.find(|kind| kind.is(group, plural) && kind.version == version)
    }

    pub(crate) fn kinds(&self) -> &[Arc<Kind>] {
        &self.kinds
    }

    /// The kind whose objects are stored in `shard`; never an alias.
    pub(crate) fn stored_in(&self, shard: usize) -> Option<&Arc<Kind>> {
        let mut kinds = self.kinds.iter();
        kinds.find(|kind| kind.shard == shard && kind.alias.is_none())
    }

    /// Group and version pairs in registration order. The core group has an empty name.
    pub(crate) fn versions(&self) -> Vec<(&str, &str)> {
        let mut seen = Vec::new();
        for kind in &self.kinds {
            let pair = (kind.group.as_str(), kind.version.as_str());
            if !seen.contains(&pair) {
                seen.push(pair);
            }
        }
        seen
    }

    pub(crate) fn of_version<'a>(
        &'a self,
        group: &'a str,
        version: &'a str,
    ) -> impl Iterator<Item = &'a Arc<Kind>> {
        let kinds = self.kinds.iter();
        kinds.filter(move |kind| kind.group == group && kind.version == version)
    }
}
