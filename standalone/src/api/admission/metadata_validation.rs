//! Names, labels and annotations, by the rules of RFC 1123 and Kubernetes.

use std::sync::LazyLock;

use regex::Regex;
use serde_json::Value;

use crate::api::{
    error::{Cause, CauseReason},
    object::{self, items},
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
    let mut causes: Vec<_> = check_name(kind, object::name(object)).into_iter().collect();
    causes.extend(entries(object, "labels").filter_map(|(key, value)| check_label(key, value)));
    let field = "metadata.annotations";
    for (key, _) in entries(object, "annotations") {
        if !is_qualified(&key.to_lowercase()) {
            let rule = "name part must consist of alphanumeric characters, '-', '_' or '.'";
            causes.push(Cause::invalid(field, key.as_str(), rule));
        }
    }
    let size = |(key, value): (&String, &Value)| key.len() + value.as_str().map_or(0, str::len);
    if entries(object, "annotations").map(size).sum::<usize>() > MAX_ANNOTATIONS_BYTES {
        let message = format!("Too long: may not be more than {MAX_ANNOTATIONS_BYTES} bytes");
        causes.push(Cause::new(CauseReason::FieldValueTooLong, field, message));
    }
    causes.extend(check_owners(object));
    causes
}

fn entries<'a>(object: &'a Value, field: &str) -> impl Iterator<Item = (&'a String, &'a Value)> {
    object["metadata"][field].as_object().into_iter().flatten()
}

fn check_name(kind: &Kind, name: &str) -> Option<Cause> {
    let field = "metadata.name";
    if name.is_empty() {
        let message = "Required value: name or generateName is required";
        return Some(Cause::new(CauseReason::FieldValueRequired, field, message));
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
    if name.len() > limit {
        let shown: String = name.chars().take(64).collect();
        let rule = format!("must be no more than {limit} characters");
        return Some(Cause::invalid(field, shown, &rule));
    }
    (!fits(form, name)).then(|| Cause::invalid(field, name, rule))
}

fn check_label(key: &str, value: &Value) -> Option<Cause> {
    let text = value.as_str().unwrap_or_default();
    let (shown, rule) = if !is_qualified(key) {
        let rule = "name part must consist of alphanumeric characters, '-', '_' or '.', and must \
            start and end with an alphanumeric character";
        (key.into(), rule)
    } else if text.len() > 63 {
        (value.clone(), "must be no more than 63 characters")
    } else if !text.is_empty() && !fits(&QUALIFIED, text) {
        let rule = "a valid label must be an empty string or consist of alphanumeric characters, \
            '-', '_' or '.', and must start and end with an alphanumeric character";
        (value.clone(), rule)
    } else {
        return None;
    };
    Some(Cause::invalid("metadata.labels", shown, rule))
}

/// `prefix/name` or `name`.
fn is_qualified(key: &str) -> bool {
    let (prefix, name) = match key.split_once('/') {
        Some((prefix, name)) => (Some(prefix), name),
        None => (None, key),
    };
    prefix.is_none_or(|prefix| prefix.len() <= 253 && fits(&SUBDOMAIN, prefix))
        && name.len() <= 63
        && fits(&QUALIFIED, name)
}

fn check_owners(object: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    let field = "metadata.ownerReferences";
    let owners = items(&object["metadata"]["ownerReferences"]);
    for (index, owner) in owners.iter().enumerate() {
        for part in ["apiVersion", "kind", "name", "uid"] {
            if owner[part].as_str().is_none_or(str::is_empty) {
                let rule = format!("{part} must not be empty");
                causes.push(Cause::invalid(
                    format!("{field}[{index}].{part}"),
                    "",
                    &rule,
                ));
            }
        }
    }
    let controllers = owners.iter().filter(|owner| owner["controller"] == true);
    if controllers.count() > 1 {
        let rule = "Only one reference can have Controller set to true";
        causes.push(Cause::invalid(field, "", rule));
    }
    causes
}
