//! Tables for `kubectl get`: the server renders the rows.

mod age;
mod builtin;
mod jsonpath;
mod pod;

use jiff::Timestamp;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1 as apiextensions;
use serde_json::{Value, json};

#[cfg(test)]
use age::human as human_age;
pub(crate) use builtin::{
    claim_columns, config_columns, event_columns, lease_columns, namespace_columns, node_columns,
    plain_columns, secret_columns,
};
pub(crate) use pod::columns as pod_columns;

use self::jsonpath::JsonPath;

/// Column of a table.
#[derive(Debug)]
pub(crate) struct Column {
    name: String,
    kind: String,
    format: String,
    description: String,
    priority: i32,
    cell: Cell,
}

#[derive(Debug)]
enum Cell {
    Computed(fn(&Value, Timestamp) -> Value),
    Path(JsonPath),
    /// Timestamp, shown as age.
    Age(JsonPath),
}

/// Part of the object that a row carries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Include {
    None,
    #[default]
    Metadata,
    Object,
}

impl Column {
    fn computed(name: &str, cell: fn(&Value, Timestamp) -> Value) -> Self {
        let format = if name == "Name" { "name" } else { "" };
        Self {
            name: name.to_owned(),
            kind: "string".to_owned(),
            format: format.to_owned(),
            description: String::new(),
            priority: 0,
            cell: Cell::Computed(cell),
        }
    }

    /// Column of `-o wide`.
    fn wide(name: &str, cell: fn(&Value, Timestamp) -> Value) -> Self {
        Self {
            priority: 1,
            ..Self::computed(name, cell)
        }
    }

    fn definition(&self) -> Value {
        json!({"name": self.name, "type": self.kind, "format": self.format,
            "description": self.description,
            "priority": self.priority})
    }

    fn cell(&self, object: &Value, now: Timestamp) -> Value {
        match &self.cell {
            Cell::Computed(compute) => compute(object, now),
            Cell::Path(path) => typed(path.first(object), &self.kind),
            Cell::Age(path) => path
                .first(object)
                .map_or(Value::Null, |time| age_of(time, now)),
        }
    }
}

/// Printer columns of a custom resource, after its name.
pub(crate) fn custom_columns(
    definitions: &[apiextensions::CustomResourceColumnDefinition],
) -> Vec<Column> {
    if definitions.is_empty() {
        return plain_columns();
    }
    let name = Column::computed("Name", |object, _| object["metadata"]["name"].clone());
    std::iter::once(name)
        .chain(definitions.iter().map(custom_column))
        .collect()
}

fn custom_column(definition: &apiextensions::CustomResourceColumnDefinition) -> Column {
    let path = JsonPath::parse(&definition.json_path);
    Column {
        name: definition.name.clone(),
        kind: definition.type_.clone(),
        format: definition.format.clone().unwrap_or_default(),
        description: definition.description.clone().unwrap_or_default(),
        priority: definition.priority.unwrap_or(0),
        cell: if definition.type_ == "date" {
            Cell::Age(path)
        } else {
            Cell::Path(path)
        },
    }
}

fn typed(found: Option<&Value>, kind: &str) -> Value {
    match found {
        None | Some(Value::Null) => Value::Null,
        Some(value) if matches!(kind, "integer" | "number" | "boolean") => value.clone(),
        Some(Value::String(text)) => json!(text),
        Some(other) => json!(other.to_string()),
    }
}

fn age_of(time: &Value, now: Timestamp) -> Value {
    json!(age::since(time.as_str(), now))
}

/// Renders a table. Later watch events omit the headers, or kubectl prints them again.
pub(crate) fn table<'a>(
    columns: &[Column],
    objects: impl Iterator<Item = &'a Value>,
    list_meta: &Value,
    now: Timestamp,
    options: (Include, bool),
) -> Value {
    let (include, headers) = options;
    let rows: Vec<_> = objects
        .map(|object| row(columns, object, now, include))
        .collect();
    let definitions: Vec<_> = columns
        .iter()
        .filter(|_| headers)
        .map(Column::definition)
        .collect();
    json!({"kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": list_meta,
        "columnDefinitions": definitions, "rows": rows})
}

fn row(columns: &[Column], object: &Value, now: Timestamp, include: Include) -> Value {
    let cells: Vec<_> = columns
        .iter()
        .map(|column| column.cell(object, now))
        .collect();
    let mut row = json!({"cells": cells});
    match include {
        Include::None => {}
        Include::Metadata => row["object"] = partial(object),
        Include::Object => row["object"] = object.clone(),
    }
    row
}

/// Metadata of an object.
pub(crate) fn partial(object: &Value) -> Value {
    json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1",
        "metadata": object["metadata"]})
}

#[cfg(test)]
mod tests;
