//! Names, labels and annotations, by the rules of RFC 1123 and Kubernetes.

use std::sync::LazyLock;

use regex::Regex;
use serde_json::Value;

use crate::api::{
    error::{Cause, CauseReason},
    object,
    registry::Kind,
};

const LABEL: &str = "[a-z0-9]([-a-z0-9]*[a-z0-9])?";
const MAX_ANNOTATIONS_BYTES: usize = 256 * 1024;

fn regex(pattern: &str) -> Option<Regex> {
    Regex::new(&format!("^{pattern}$")).ok()
}

static LABEL_NAME: LazyLock<Option<Regex>> = LazyLock::new(|| regex(LABEL));
static SUBDOMAIN: LazyLock<Option<Regex>> =
    LazyLock::new(|| regex(&format!("{LABEL}(\\.{LABEL})*")));
static QUALIFIED: LazyLock<Option<Regex>> =
    LazyLock::new(|| regex("([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"));

fn fits(regex: &LazyLock<Option<Regex>>, text: &str) -> bool {
    regex.as_ref().is_some_and(|regex| regex.is_match(text))
}

/// Validates the metadata that a client may write.
pub(super) fn check(kind: &Kind, object: &Value) -> Vec<Cause> {
    let mut causes = check_name(kind, object::name(object));
    causes.extend(entries(object, "labels").filter_map(|(key, value)| check_label(key, value)));
    causes.extend(
        entries(object, "annotations")
            .filter(|(key, _)| !is_qualified(&key.to_lowercase()))
            .map(|(key, _)| {
                Cause::invalid(
                    "metadata.annotations",
                    &key.as_str().into(),
                    "name part must consist of alphanumeric characters, '-', '_' or '.'",
                )
            }),
    );
    let size: usize = entries(object, "annotations")
        .map(|(key, value)| key.len() + value.as_str().map_or(0, str::len))
        .sum();
    if size > MAX_ANNOTATIONS_BYTES {
        let message = format!("Too long: may not be more than {MAX_ANNOTATIONS_BYTES} bytes");
        causes.push(Cause::new(
            CauseReason::TooLong,
            "metadata.annotations",
            message,
        ));
    }
    causes.extend(check_owners(object));
    causes
}

fn entries<'a>(object: &'a Value, field: &str) -> impl Iterator<Item = (&'a String, &'a Value)> {
    object["metadata"][field].as_object().into_iter().flatten()
}

fn check_name(kind: &Kind, name: &str) -> Vec<Cause> {
    if name.is_empty() {
        return vec![Cause::new(
            CauseReason::Required,
            "metadata.name",
            "Required value: name or generateName is required",
        )];
    }
    let (form, rule, limit) = if kind.is("", "namespaces") {
        (
            &LABEL_NAME,
            "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or \
                '-', and must start and end with an alphanumeric character",
            63,
        )
    } else {
        (
            &SUBDOMAIN,
            "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, \
                '-' or '.', and must start and end with an alphanumeric character",
            253,
        )
    };
    let mut causes = Vec::new();
    if name.len() > limit {
        let shown: String = name.chars().take(64).collect();
        causes.push(Cause::invalid(
            "metadata.name",
            &shown.into(),
            &format!("must be no more than {limit} characters"),
        ));
    } else if !fits(form, name) {
        causes.push(Cause::invalid("metadata.name", &name.into(), rule));
    }
    causes
}

fn check_label(key: &str, value: &Value) -> Option<Cause> {
    let text = value.as_str().unwrap_or_default();
    if !is_qualified(key) {
        return Some(Cause::invalid(
            "metadata.labels",
            &key.into(),
            "name part must consist of alphanumeric characters, '-', '_' or '.', and must start \
                and end with an alphanumeric character",
        ));
    }
    if text.len() > 63 {
        return Some(Cause::invalid(
            "metadata.labels",
            value,
            "must be no more than 63 characters",
        ));
    }
    (!text.is_empty() && !fits(&QUALIFIED, text)).then(|| {
        Cause::invalid(
            "metadata.labels",
            value,
            "a valid label must be an empty string or consist of alphanumeric characters, '-', \
            '_' or '.', and must start and end with an alphanumeric character",
        )
    })
}

/// `prefix/name` or `name`.
fn is_qualified(key: &str) -> bool {
    let (prefix, name) = key
        .split_once('/')
        .map_or((None, key), |(prefix, name)| (Some(prefix), name));
    prefix.is_none_or(|prefix| prefix.len() <= 253 && fits(&SUBDOMAIN, prefix))
        && name.len() <= 63
        && fits(&QUALIFIED, name)
}

fn check_owners(object: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    let owners = object["metadata"]["ownerReferences"].as_array();
    for (index, owner) in owners.into_iter().flatten().enumerate() {
        for field in ["apiVersion", "kind", "name", "uid"] {
            if owner[field].as_str().is_none_or(str::is_empty) {
                let path = format!("metadata.ownerReferences[{index}].{field}");
                causes.push(Cause::invalid(
                    path,
                    &"".into(),
                    &format!("{field} must not be empty"),
                ));
            }
        }
    }
    if owners
        .into_iter()
        .flatten()
        .filter(|owner| owner["controller"] == true)
        .count()
        > 1
    {
        causes.push(Cause::invalid(
            "metadata.ownerReferences",
            &"".into(),
            "Only one reference can have Controller set to true",
        ));
    }
    causes
}
