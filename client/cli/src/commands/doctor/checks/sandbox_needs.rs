//! Amounts that a sandbox of the chart's defaults asks the API server for.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use serde_json::Value;
use shared::quantity::value;
use shared::resources::{ResourceDefaults, minimal_resources};

use super::super::facts::Facts;
use super::super::finding::Problem;
use crate::installation::variable;

/// Quantities by the names of resources.
pub(super) type Amounts = BTreeMap<String, String>;

/// Requests and limits of a container.
#[derive(Debug, Clone, Default)]
pub(super) struct Needs {
    pub(super) requests: Amounts,
    pub(super) limits: Amounts,
}

#[derive(Debug)]
pub(super) struct SandboxNeeds {
    /// The container that brings the executor; none where an image volume does.
    pub(super) init_container: Option<Needs>,
    pub(super) container: Needs,
    /// Size of the workspace.
    pub(super) workspace: Option<String>,
}

impl SandboxNeeds {
    pub(super) fn of(facts: &Facts) -> Result<Self, Problem> {
        let controller = facts.deployment("controller")?;
        let gateway = facts.deployment("gateway")?;
        let defaults = ResourceDefaults::default();
        let read = |name, default| variable(controller, name).map_or(default, pairs);
        let by_volume = variable(controller, "EXECUTOR_INJECTION") == Some("image-volume");
        Ok(Self {
            init_container: (!by_volume).then(init_container),
            container: Needs {
                requests: read("SANDBOX_DEFAULT_REQUESTS", defaults.requests),
                limits: read("SANDBOX_DEFAULT_LIMITS", defaults.limits),
            },
            workspace: variable(gateway, "GATEWAY_WORKSPACE_SIZE").map(Into::into),
        })
    }

    /// Needs of the Pod. Its init container ends before the other one starts, so the larger counts.
    pub(super) fn pod(&self) -> Needs {
        let mut pod = self.container.clone();
        if let Some(init) = &self.init_container {
            raise(&mut pod.requests, &init.requests);
            raise(&mut pod.limits, &init.limits);
        }
        pod
    }
}

fn init_container() -> Needs {
    let resources = minimal_resources();
    let amounts = |amounts: Option<BTreeMap<String, Quantity>>| {
        let amounts = amounts.into_iter().flatten();
        amounts.map(|(name, amount)| (name, amount.0)).collect()
    };
    Needs {
        requests: amounts(resources.requests),
        limits: amounts(resources.limits),
    }
}

fn pairs(text: &str) -> Amounts {
    let pairs = text.split(',').filter_map(|pair| pair.split_once('='));
    pairs
        .map(|(name, amount)| (name.trim().into(), amount.trim().into()))
        .collect()
}

fn raise(amounts: &mut Amounts, others: &Amounts) {
    for (name, other) in others {
        let amount = amounts.entry(name.clone()).or_insert_with(|| other.clone());
        if is_more(other, amount) {
            amount.clone_from(other);
        }
    }
}

/// True if both are quantities and the first is larger.
pub(super) fn is_more(one: &str, other: &str) -> bool {
    matches!((value(one), value(other)), (Some(one), Some(other)) if one > other)
}

/// Quantities of a field of an object.
pub(super) fn amounts(field: &Value) -> Amounts {
    let fields = field.as_object().into_iter().flatten();
    fields
        .filter_map(|(name, amount)| Some((name.clone(), amount.as_str()?.to_owned())))
        .collect()
}
