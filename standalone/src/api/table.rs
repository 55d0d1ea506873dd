//! Tables for `kubectl get`: the server renders the rows.

mod builtin;
mod pod;

use std::borrow::Cow;

use jiff::Timestamp;
use jsonpath_rust::{
    parser::{model::JpQuery, parse_json_path},
    query::js_path_process,
};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceColumnDefinition;
use serde_json::{Value, json};

pub(crate) use builtin::builtin_columns;

#[derive(Debug)]
pub(crate) struct Column {
    name: String,
    kind: String,
    format: String,
    description: String,
    priority: i32,
    cell: Cell,
}

/// Source of the cells of a column.
#[derive(Clone, Debug)]
enum Cell {
    Computed(fn(&Value, Timestamp) -> Value),
    /// JSON pointer.
    Field(&'static str),
    Age,
    /// Path of a custom resource. One that cannot be parsed shows empty cells.
    Path(Option<JpQuery>),
}

const NAME: (&str, i32, Cell) = ("Name", 0, Cell::Field("/metadata/name"));
const AGE: (&str, i32, Cell) = ("Age", 0, Cell::Age);
const NONE: Cell = Cell::Computed(|_, _| json!("<none>"));

/// Part of the object that a row carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Include {
    None,
    Metadata,
    Object,
}

impl Column {
    fn new(name: &str, priority: i32, cell: Cell) -> Self {
        Self {
            name: name.to_owned(),
            kind: "string".to_owned(),
            format: if name == "Name" { "name" } else { "" }.to_owned(),
            description: String::new(),
            priority,
            cell,
        }
    }

    fn custom(definition: &CustomResourceColumnDefinition) -> Self {
        let path = format!("${}", definition.json_path);
        Self {
            name: definition.name.clone(),
            kind: definition.type_.clone(),
            format: definition.format.clone().unwrap_or_default(),
            description: definition.description.clone().unwrap_or_default(),
            priority: definition.priority.unwrap_or(0),
            cell: Cell::Path(parse_json_path(&path).ok()),
        }
    }

    fn definition(&self) -> Value {
        json!({"name": self.name, "type": self.kind, "format": self.format,
            "description": self.description, "priority": self.priority})
    }

    fn cell(&self, object: &Value, now: Timestamp) -> Value {
        match &self.cell {
            Cell::Computed(compute) => compute(object, now),
            Cell::Field(pointer) => object.pointer(pointer).cloned().unwrap_or_default(),
            Cell::Age => age(object["metadata"]["creationTimestamp"].as_str(), now).into(),
            Cell::Path(path) => {
                let found = path
                    .as_ref()
                    .and_then(|path| js_path_process(path, object).ok());
                match found.unwrap_or_default().first().map(|found| found.val) {
                    None | Some(Value::Null) => Value::Null,
                    Some(time) if self.kind == "date" => age(time.as_str(), now).into(),
                    Some(Value::String(text)) => json!(text),
                    Some(value) if self.kind == "string" => json!(value.to_string()),
                    Some(value) => value.clone(),
                }
            }
        }
    }
}

/// Printer columns of a custom resource, after its name.
pub(crate) fn custom_columns(definitions: &[CustomResourceColumnDefinition]) -> Vec<Column> {
    if definitions.is_empty() {
        return builtin_columns("");
    }
    let mut columns = builtin_columns("");
    columns.truncate(1);
    columns.extend(definitions.iter().map(Column::custom));
    columns
}

pub(crate) fn rows(
    columns: &[Column],
    objects: &[Cow<'_, Value>],
    now: Timestamp,
    include: Include,
) -> Vec<Value> {
    let row = |object: &Cow<'_, Value>| {
        let cells = columns.iter().map(|column| column.cell(object, now));
        let mut row = json!({"cells": cells.collect::<Vec<_>>()});
        match include {
            Include::None => {}
            Include::Metadata => row["object"] = partial(object),
            Include::Object => row["object"] = Value::clone(object),
        }
        row
    };
    objects.iter().map(row).collect()
}

/// A table, with or without its headers.
pub(crate) fn table(columns: &[Column], rows: &[Value], meta: &Value, headers: bool) -> Value {
    let definitions = columns.iter().filter(|_| headers).map(Column::definition);
    json!({"kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": meta,
        "columnDefinitions": definitions.collect::<Vec<_>>(), "rows": rows})
}

/// Metadata of an object.
pub(crate) fn partial(object: &Value) -> Value {
    json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1",
        "metadata": object["metadata"]})
}

/// Age of a timestamp in the format of kubectl; `<unknown>` without one.
fn age(time: Option<&str>, now: Timestamp) -> String {
    match time.map(str::parse::<Timestamp>) {
        None => "<unknown>".to_owned(),
        Some(Err(_)) => "<invalid>".to_owned(),
        Some(Ok(time)) => human(now.as_second() - time.as_second()),
    }
}

/// Formats a number of seconds.
fn human(seconds: i64) -> String {
    let (minutes, hours) = (seconds / 60, seconds / 3600);
    let (days, years) = (hours / 24, hours / 24 / 365);
    let pair = |large: i64, unit: char, small: i64, small_unit: char| match small {
        0 => format!("{large}{unit}"),
        _ => format!("{large}{unit}{small}{small_unit}"),
    };
    match seconds {
        ..=-2 => "<invalid>".to_owned(),
        -1 => "0s".to_owned(),
        0..120 => format!("{seconds}s"),
        _ if minutes < 10 => pair(minutes, 'm', seconds % 60, 's'),
        _ if minutes < 180 => format!("{minutes}m"),
        _ if hours < 8 => pair(hours, 'h', minutes % 60, 'm'),
        _ if hours < 48 => format!("{hours}h"),
        _ if hours < 24 * 8 => pair(days, 'd', hours % 24, 'h'),
        _ if hours < 24 * 365 * 2 => format!("{days}d"),
        _ if hours < 24 * 365 * 8 => pair(years, 'y', days % 365, 'd'),
        _ => format!("{years}y"),
    }
}

#[cfg(test)]
mod tests;
