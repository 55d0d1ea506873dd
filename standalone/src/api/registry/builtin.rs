//! Built-in resources, validated by their k8s-openapi types.

use k8s_openapi::{
    Metadata, NamespaceResourceScope, Resource,
    api::{
        coordination::v1::Lease,
        core::v1::{
            ConfigMap, Event, Namespace, Node, PersistentVolumeClaim, Pod, Secret, Service,
            ServiceAccount,
        },
        networking::v1::NetworkPolicy,
    },
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;

use super::{Kind, ObjectValidation};
use crate::api::table;

pub(super) fn kinds() -> Vec<Kind> {
    vec![
        Kind {
            status: true,
            columns: table::namespace_columns(),
            ..cluster::<Namespace>("namespaces", &["ns"])
        },
        Kind {
            status: true,
            columns: table::pod_columns(),
            ..namespaced::<Pod>("pods", &["po"])
        },
        Kind {
            status: true,
            columns: table::claim_columns(),
            ..namespaced::<PersistentVolumeClaim>("persistentvolumeclaims", &["pvc"])
        },
        Kind {
            columns: table::secret_columns(),
            ..namespaced::<Secret>("secrets", &[])
        },
        Kind {
            columns: table::config_columns(),
            ..namespaced::<ConfigMap>("configmaps", &["cm"])
        },
        Kind {
            columns: table::event_columns(),
            ..namespaced::<Event>("events", &["ev"])
        },
        Kind {
            status: true,
            columns: table::node_columns(),
            ..cluster::<Node>("nodes", &["no"])
        },
        namespaced::<ServiceAccount>("serviceaccounts", &["sa"]),
        Kind {
            status: true,
            ..namespaced::<Service>("services", &["svc"])
        },
        Kind {
            columns: table::lease_columns(),
            ..namespaced::<Lease>("leases", &[])
        },
        namespaced::<NetworkPolicy>("networkpolicies", &["netpol"]),
        Kind {
            read_only: true,
            status: true,
            ..cluster::<CustomResourceDefinition>("customresourcedefinitions", &["crd", "crds"])
        },
    ]
}

fn namespaced<K>(plural: &str, short_names: &[&str]) -> Kind
where
    K: Resource<Scope = NamespaceResourceScope> + Metadata + Serialize + DeserializeOwned,
{
    Kind {
        namespaced: true,
        ..cluster::<K>(plural, short_names)
    }
}

pub(super) fn cluster<K: Resource + Serialize + DeserializeOwned>(
    plural: &str,
    short_names: &[&str],
) -> Kind {
    Kind {
        group: K::GROUP.to_owned(),
        version: K::VERSION.to_owned(),
        plural: plural.to_owned(),
        singular: K::KIND.to_lowercase(),
        name: K::KIND.to_owned(),
        short_names: short_names.iter().map(|&name| name.to_owned()).collect(),
        categories: if plural == "pods" {
            vec!["all".to_owned()]
        } else {
            Vec::new()
        },
        namespaced: false,
        read_only: false,
        status: false,
        scale: None,
        shard: 0,
        model: ObjectValidation::Typed(through_type::<K>),
        columns: table::plain_columns(),
        alias: None,
        selectable: selectable(plural),
    }
}

/// Selectable fields, as on a real server.
fn selectable(plural: &str) -> Vec<String> {
    let own: &[&str] = match plural {
        "pods" => &[
            "spec.nodeName",
            "spec.restartPolicy",
            "spec.schedulerName",
            "spec.serviceAccountName",
            "status.phase",
            "status.podIP",
        ],
        "events" => &[
            "involvedObject.apiVersion",
            "involvedObject.fieldPath",
            "involvedObject.kind",
            "involvedObject.name",
            "involvedObject.namespace",
            "involvedObject.resourceVersion",
            "involvedObject.uid",
            "reason",
            "reportingComponent",
            "source",
            "type",
        ],
        "secrets" => &["type"],
        "namespaces" => &["status.phase"],
        "nodes" => &["spec.unschedulable"],
        _ => &[],
    };
    let common = ["metadata.name", "metadata.namespace"];
    common.iter().chain(own).map(ToString::to_string).collect()
}

/// Round trip through the Rust type, which drops unknown fields.
fn through_type<K: Serialize + DeserializeOwned>(
    object: &Value,
) -> Result<Value, serde_json::Error> {
    serde_json::to_value(K::deserialize(object)?)
}
