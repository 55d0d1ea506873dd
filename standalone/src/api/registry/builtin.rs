//! Built-in resources, validated by their k8s-openapi types.

use k8s_openapi::{
    NamespaceResourceScope, Resource,
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
        with_status(cluster::<Namespace>("namespaces", &["ns"])),
        with_status(namespaced::<Pod>("pods", &["po"])),
        with_status(namespaced::<PersistentVolumeClaim>(
            "persistentvolumeclaims",
            &["pvc"],
        )),
        namespaced::<Secret>("secrets", &[]),
        namespaced::<ConfigMap>("configmaps", &["cm"]),
        namespaced::<Event>("events", &["ev"]),
        with_status(cluster::<Node>("nodes", &["no"])),
        namespaced::<ServiceAccount>("serviceaccounts", &["sa"]),
        with_status(namespaced::<Service>("services", &["svc"])),
        namespaced::<Lease>("leases", &[]),
        namespaced::<NetworkPolicy>("networkpolicies", &["netpol"]),
        Kind {
            read_only: true,
            status: true,
            ..cluster::<CustomResourceDefinition>("customresourcedefinitions", &["crd", "crds"])
        },
    ]
}

fn with_status(kind: Kind) -> Kind {
    Kind {
        status: true,
        ..kind
    }
}

pub(super) fn namespaced<K>(plural: &str, short_names: &[&str]) -> Kind
where
    K: Resource<Scope = NamespaceResourceScope> + Serialize + DeserializeOwned,
{
    Kind {
        namespaced: true,
        ..cluster::<K>(plural, short_names)
    }
}

fn cluster<K: Resource + Serialize + DeserializeOwned>(plural: &str, short_names: &[&str]) -> Kind {
    let owned = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect();
    Kind {
        group: K::GROUP.to_owned(),
        version: K::VERSION.to_owned(),
        plural: plural.to_owned(),
        singular: K::KIND.to_lowercase(),
        name: K::KIND.to_owned(),
        short_names: owned(short_names),
        categories: owned(if plural == "pods" { &["all"] } else { &[] }),
        namespaced: false,
        read_only: false,
        status: false,
        scale: None,
        shard: 0,
        model: ObjectValidation::Typed(through_type::<K>),
        columns: table::builtin_columns(plural),
        alias: None,
        selectable: selectable(plural),
    }
}

/// Selectable fields besides name and namespace, as on a real server.
fn selectable(plural: &str) -> Vec<String> {
    let own = match plural {
        "pods" => {
            "spec.nodeName spec.restartPolicy spec.schedulerName spec.serviceAccountName \
                status.phase status.podIP"
        }
        "events" => {
            "involvedObject.apiVersion involvedObject.fieldPath involvedObject.kind \
                involvedObject.name involvedObject.namespace involvedObject.resourceVersion \
                involvedObject.uid reason reportingComponent source type"
        }
        "secrets" => "type",
        "namespaces" => "status.phase",
        "nodes" => "spec.unschedulable",
        _ => "",
    };
    own.split_whitespace().map(str::to_owned).collect()
}

/// Round trip through the Rust type, which drops unknown fields.
fn through_type<K: Serialize + DeserializeOwned>(
    object: &Value,
) -> Result<Value, serde_json::Error> {
    serde_json::to_value(K::deserialize(object)?)
}
