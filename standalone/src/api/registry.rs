//! Which resources exist and what is special about each. Everything below the request parser asks a [`Kind`] and never
//! compares names of resources, so one new line here (or a CRD) is a new resource.

mod builtin;
mod custom;
mod event;

use std::{collections::HashMap, sync::Arc};

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use serde_json::Value;

use super::{error::Group, schema::Schema, table::Column};

/// One resource type.
#[derive(Debug)]
pub(crate) struct Kind {
    pub(crate) group: String,
    pub(crate) version: String,
    pub(crate) plural: String,
    pub(crate) singular: String,
    /// `Pod`, as in the field `kind` of objects.
    pub(crate) name: String,
    pub(crate) short_names: Vec<String>,
    pub(crate) categories: Vec<String>,
    pub(crate) namespaced: bool,
    pub(crate) read_only: bool,
    /// Status is written through its own subresource only.
    pub(crate) status: bool,
    pub(crate) scale: Option<Scale>,
    /// The shard of the store that holds the objects; two kinds may share one.
    pub(crate) shard: usize,
    pub(crate) model: Model,
    pub(crate) columns: Vec<Column>,
    pub(crate) alias: Option<Alias>,
}

/// How objects of a kind are checked.
#[derive(Debug)]
pub(crate) enum Model {
    /// Through the Rust type: what it does not know is an unknown field.
    Typed(fn(&Value) -> Result<Value, serde_json::Error>),
    /// By the schema of a custom resource definition.
    Schema(Box<Schema>),
}

/// Another spelling of objects that are stored as a different kind.
#[derive(Debug)]
pub(crate) struct Alias {
    pub(crate) from_stored: fn(&Value) -> Value,
    pub(crate) to_stored: fn(&Value) -> Value,
}

/// Where a custom resource keeps what `/scale` shows: paths below the object, without the leading dot.
#[derive(Clone, Debug)]
pub(crate) struct Scale {
    pub(crate) spec: Vec<String>,
    pub(crate) status: Vec<String>,
    pub(crate) selector: Option<Vec<String>>,
}

impl Kind {
    pub(crate) fn api_version(&self) -> String {
        if self.group.is_empty() {
            self.version.clone()
        } else {
            format!("{}/{}", self.group, self.version)
        }
    }

    /// `sandboxes` of `openhands.dev`, for messages about an object.
    pub(crate) fn resource_group(&self) -> Group {
        Group {
            group: self.group.clone(),
            item: self.plural.clone(),
        }
    }

    /// `Sandbox` of `openhands.dev`, for messages about a type.
    pub(crate) fn kind_group(&self) -> Group {
        Group {
            group: self.group.clone(),
            item: self.name.clone(),
        }
    }

    pub(crate) fn is(&self, group: &str, plural: &str) -> bool {
        self.group == group && self.plural == plural
    }

    pub(crate) fn is_pod(&self) -> bool {
        self.is("", "pods")
    }

    pub(crate) fn is_custom(&self) -> bool {
        matches!(self.model, Model::Schema(_))
    }

    pub(crate) fn schema(&self) -> Option<&Schema> {
        match &self.model {
            Model::Schema(schema) => Some(schema),
            Model::Typed(_) => None,
        }
    }
}

/// All kinds, and one shard name per kind of stored object.
#[derive(Debug)]
pub(crate) struct Registry {
    kinds: Vec<Arc<Kind>>,
    by_path: HashMap<(String, String, String), Arc<Kind>>,
    shards: Vec<String>,
}

impl Registry {
    pub(crate) fn new(definitions: &[CustomResourceDefinition]) -> Self {
        let mut registry = Self {
            kinds: Vec::new(),
            by_path: HashMap::new(),
            shards: Vec::new(),
        };
        builtin::kinds()
            .into_iter()
            .chain(definitions.iter().flat_map(custom::kinds))
            .for_each(|kind| registry.add(kind));
        registry.add(event::kind());
        registry
    }

    fn add(&mut self, mut kind: Kind) {
        let name = if kind.alias.is_some() {
            kind.plural.clone()
        } else {
            kind.resource_group().qualified()
        };
        kind.shard = self.shard(&name).unwrap_or_else(|| {
            self.shards.push(name);
            self.shards.len() - 1
        });
        let kind = Arc::new(kind);
        self.by_path.insert(
            (
                kind.group.clone(),
                kind.version.clone(),
                kind.plural.clone(),
            ),
            kind.clone(),
        );
        self.kinds.push(kind);
    }

    /// The shard that holds `pods`, `sandboxes.openhands.dev`, …
    pub(crate) fn shard(&self, name: &str) -> Option<usize> {
        self.shards.iter().position(|shard| shard == name)
    }

    pub(crate) fn shards(&self) -> &[String] {
        &self.shards
    }

    pub(crate) fn find(&self, group: &str, version: &str, plural: &str) -> Option<&Arc<Kind>> {
        self.by_path
            .get(&(group.to_owned(), version.to_owned(), plural.to_owned()))
    }

    pub(crate) fn kinds(&self) -> &[Arc<Kind>] {
        &self.kinds
    }

    /// The kind whose objects are stored in `shard`; never an alias.
    pub(crate) fn stored_in(&self, shard: usize) -> Option<&Arc<Kind>> {
        self.kinds
            .iter()
            .find(|kind| kind.shard == shard && kind.alias.is_none())
    }

    /// Group and version pairs in the order they were added; the core group has the empty name.
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
        self.kinds
            .iter()
            .filter(move |kind| kind.group == group && kind.version == version)
    }
}
