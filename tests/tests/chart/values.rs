//! `values.yaml` is the one place where values are described. The table in `docs/values.md` is made
//! from its comments, and `values.schema.json` knows the same names. `make generate` writes the table.

use std::fmt::Write as _;

use serde_json::Value;

use tests::cli_tools::{file, text};

const VALUES: &str = "charts/sandbox-operator/values.yaml";
const SCHEMA: &str = "charts/sandbox-operator/values.schema.json";
const TABLE: &str = "docs/values.md";

/// A value that has a description.
struct Row {
    path: Vec<String>,
    what: String,
}

#[test]
fn values_doc_matches_chart() {
    let (values, rows) = (values(), rows(&text(VALUES)));
    let mut table = String::from(
        "# Values of the chart\n\n\
         Made by `make generate` from the comments in `charts/sandbox-operator/values.yaml`. Do not edit.\n\n\
         | Value | Default | |\n|---|---|---|\n",
    );
    for Row { path, what } in &rows {
        let default = at(&values, path).to_string().replace('|', "\\|");
        let path = path.join(".");
        let what = what.replace('|', "\\|");
        writeln!(table, "| `{path}` | `{default}` | {what} |").unwrap();
    }
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(file(TABLE), &table).unwrap();
    }
    assert!(text(TABLE) == table, "{TABLE} is old: run `make generate`");
}

#[test]
fn values_schema_rejects_unknown_values() {
    let schema: Value = serde_json::from_str(&text(SCHEMA)).unwrap();
    let values = values();
    for Row { path, .. } in rows(&text(VALUES)) {
        let mut place = &schema;
        for name in &path {
            assert_eq!(place["additionalProperties"], false, "at {path:?}");
            place = &place["properties"][name];
            assert!(place.is_object(), "{SCHEMA} lacks {path:?}");
        }
    }
    let mut unknown = Vec::new();
    beyond(&schema, &values, "", &mut unknown);
    assert_eq!(unknown, ["global"], "{SCHEMA} has what {VALUES} has not");
}

/// Names of the schema that the values lack.
fn beyond(schema: &Value, values: &Value, path: &str, unknown: &mut Vec<String>) {
    let Some(properties) = schema["properties"].as_object() else {
        return;
    };
    for (name, inner) in properties {
        match values.get(name) {
            None => unknown.push(format!("{path}{name}")),
            Some(value) => beyond(inner, value, &format!("{path}{name}."), unknown),
        }
    }
}

fn values() -> Value {
    serde_yaml::from_str(&text(VALUES)).unwrap()
}

fn at<'a>(values: &'a Value, path: &[String]) -> &'a Value {
    path.iter().fold(values, |value, name| &value[name])
}

/// Every value with the comment above it. One without a comment must be a section of others.
fn rows(yaml: &str) -> Vec<Row> {
    let (mut rows, mut sections) = (Vec::new(), Vec::<(usize, String)>::new());
    let (mut comment, mut described): (Vec<&str>, Option<usize>) = (Vec::new(), None);
    for line in yaml.lines() {
        let indent = line.len() - line.trim_start().len();
        let words = line.trim();
        if let Some(words) = words.strip_prefix("# ") {
            comment.push(words);
            continue;
        }
        let Some((name, value)) = words.split_once(':') else {
            continue;
        };
        if described.is_some_and(|outer| indent > outer) {
            continue; // A part of the value above.
        }
        sections.retain(|(outer, _)| *outer < indent);
        let names = sections.iter().map(|(_, name)| name.clone());
        let path: Vec<_> = names.chain([name.to_owned()]).collect();
        if comment.is_empty() {
            assert!(value.is_empty(), "{VALUES} does not describe {path:?}");
            sections.push((indent, name.to_owned()));
            described = None;
            continue;
        }
        let what = std::mem::take(&mut comment).join(" ");
        rows.push(Row { path, what });
        described = Some(indent);
    }
    rows
}
