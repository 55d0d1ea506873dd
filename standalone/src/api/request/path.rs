//! Resource paths: `/api/v1/…` and `/apis/{group}/{version}/…`, with or without a namespace, name
//! and subresource.

use std::sync::Arc;

use crate::api::{
    error::ApiError,
    registry::{Kind, Registry},
    store::ObjectKey,
};

/// Resource that a request is about.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    pub(crate) kind: Arc<Kind>,
    pub(crate) namespace: Option<String>,
    pub(crate) name: Option<String>,
    pub(crate) subresource: Option<Subresource>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Subresource {
    Status,
    Scale,
    Log,
    Binding,
    Eviction,
    Resize,
    Finalize,
    Exec,
    Attach,
    PortForward,
}

impl Target {
    pub(crate) fn parse(registry: &Registry, path: &str) -> Result<Self, ApiError> {
        let segments: Vec<_> = path.trim_matches('/').split('/').collect();
        match segments.as_slice() {
            ["api", "v1", rest @ ..] => Self::in_version(registry, "", "v1", rest),
            ["apis", group, version, rest @ ..] => Self::in_version(registry, group, version, rest),
            _ => Err(ApiError::UnknownPath),
        }
    }

    fn in_version(
        registry: &Registry,
        group: &str,
        version: &str,
        rest: &[&str],
    ) -> Result<Self, ApiError> {
        let (namespace, plural, rest) = match rest {
            ["namespaces", _, "status" | "finalize"] if group.is_empty() => {
                (None, "namespaces", &rest[1..])
            }
            ["namespaces", namespace, plural, rest @ ..] => (Some(*namespace), *plural, rest),
            [plural, rest @ ..] => (None, *plural, rest),
            [] => return Err(ApiError::UnknownPath),
        };
        let kind = registry.find(group, version, plural);
        let kind = kind.ok_or(ApiError::UnknownPath)?.clone();
        let (name, subresource) = match rest {
            [] => (None, None),
            [name] => (Some((*name).to_owned()), None),
            [name, sub] => (Some((*name).to_owned()), Some(subresource(&kind, sub)?)),
            _ => return Err(ApiError::UnknownPath),
        };
        let is_scoped = namespace.is_some();
        if is_scoped != kind.namespaced && (is_scoped || name.is_some()) {
            return Err(ApiError::UnknownPath);
        }
        Ok(Self {
            kind,
            namespace: namespace.map(str::to_owned),
            name,
            subresource,
        })
    }

    pub(crate) fn key_of(&self, name: &str) -> ObjectKey {
        let namespace = self.namespace.as_deref().unwrap_or_default();
        ObjectKey::new(self.kind.shard, namespace, name)
    }

    pub(crate) fn object_key(&self) -> ObjectKey {
        self.key_of(self.name.as_deref().unwrap_or_default())
    }

    /// Error of a write that lost too many races.
    pub(crate) fn contended(&self) -> ApiError {
        self.kind
            .conflict(self.name.as_deref().unwrap_or_default(), "too many writers")
    }
}

fn subresource(kind: &Kind, name: &str) -> Result<Subresource, ApiError> {
    match name {
        "status" if kind.status => Ok(Subresource::Status),
        "scale" if kind.scale.is_some() => Ok(Subresource::Scale),
        "log" if kind.is_pod() => Ok(Subresource::Log),
        "binding" if kind.is_pod() => Ok(Subresource::Binding),
        "eviction" if kind.is_pod() => Ok(Subresource::Eviction),
        "resize" if kind.is_pod() => Ok(Subresource::Resize),
        "exec" if kind.is_pod() => Ok(Subresource::Exec),
        "attach" if kind.is_pod() => Ok(Subresource::Attach),
        "portforward" if kind.is_pod() => Ok(Subresource::PortForward),
        "finalize" if kind.is("", "namespaces") => Ok(Subresource::Finalize),
        _ => Err(ApiError::UnknownPath),
    }
}
