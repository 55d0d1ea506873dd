//! Kinds from CRDs, so that standalone serves the same YAML as a cluster.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, CustomResourceDefinitionVersion, CustomResourceSubresourceScale,
};

use super::{Kind, ObjectValidation, Scale};
use crate::api::{schema::Schema, table};

/// One kind per served version.
pub(super) fn kinds(definition: &CustomResourceDefinition) -> Vec<Kind> {
    let versions = definition.spec.versions.iter();
    let served = versions.filter(|version| version.served);
    served.map(|version| kind(definition, version)).collect()
}

fn kind(definition: &CustomResourceDefinition, version: &CustomResourceDefinitionVersion) -> Kind {
    let (spec, names) = (&definition.spec, &definition.spec.names);
    let columns = version.additional_printer_columns.as_deref();
    let singular = names.singular.clone();
    let subresources = version.subresources.as_ref();
    Kind {
        group: spec.group.clone(),
        version: version.name.clone(),
        plural: names.plural.clone(),
        singular: singular.unwrap_or_else(|| names.kind.to_lowercase()),
        name: names.kind.clone(),
        short_names: names.short_names.clone().unwrap_or_default(),
        categories: names.categories.clone().unwrap_or_default(),
        namespaced: spec.scope == "Namespaced",
        read_only: false,
        status: subresources.is_some_and(|sub| sub.status.is_some()),
        scale: subresources.and_then(|sub| sub.scale.as_ref()).map(scale),
        shard: 0,
        model: ObjectValidation::Schema(Box::new(Schema::new(version.schema.as_ref()))),
        columns: table::custom_columns(columns.unwrap_or_default()),
        alias: None,
        selectable: selectable(version),
    }
}

fn selectable(version: &CustomResourceDefinitionVersion) -> Vec<String> {
    let own = version.selectable_fields.iter().flatten();
    own.map(|field| field.json_path.trim_start_matches('.').to_owned())
        .collect()
}

fn scale(scale: &CustomResourceSubresourceScale) -> Scale {
    Scale {
        spec: path(&scale.spec_replicas_path),
        status: path(&scale.status_replicas_path),
        selector: path(scale.label_selector_path.as_deref().unwrap_or_default()),
    }
}

fn path(text: &str) -> Vec<String> {
    let steps = text.trim_start_matches('.').split('.');
    steps.map(str::to_owned).collect()
}
