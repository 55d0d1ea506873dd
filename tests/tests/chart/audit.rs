//! The API server's audit log: who did what, and what was refused.

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::Value;

/// A verb on a resource with its group, `create pods` or `patch sandboxes.openhands.dev/status`.
pub(crate) type Deed = String;

pub(crate) fn deed(verb: &str, group: &str, resource: &str) -> Deed {
    let (resource, part) = resource.split_once('/').unwrap_or((resource, ""));
    let group = if group.is_empty() {
        String::new()
    } else {
        format!(".{group}")
    };
    let part = if part.is_empty() {
        String::new()
    } else {
        format!("/{part}")
    };
    format!("{verb} {resource}{group}{part}")
}

/// Requests of a service account in a namespace, and the forbidden ones among them.
#[derive(Debug, Default)]
pub(crate) struct Record {
    pub(crate) done: BTreeSet<Deed>,
    pub(crate) refused: BTreeSet<Deed>,
}

/// Reads the log of the cluster: what an account did in a namespace, or, with none, in no namespace.
pub(crate) fn record(account: &str, namespace: Option<&str>) -> Record {
    let folder = std::env::var("CLUSTER_DIR").unwrap();
    let log = std::fs::read_to_string(Path::new(&folder).join("log/audit.jsonl")).unwrap();
    let mut record = Record::default();
    for line in log.lines() {
        // The last one may be half written.
        let Ok(event) = serde_json::from_str::<Value>(line) else {
            continue;
        };
        let object = &event["objectRef"];
        if event["user"]["username"] != account
            || object["resource"].is_null()
            || object["namespace"].as_str() != namespace
        {
            continue;
        }
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let part = match text(&object["subresource"]) {
            part if part.is_empty() => part,
            part => format!("/{part}"),
        };
        let resource = text(&object["resource"]) + &part;
        let deed = deed(&text(&event["verb"]), &text(&object["apiGroup"]), &resource);
        // A Pod of a namespace with rules, or one of these tests, may be refused for other reasons.
        let forbidden = event["annotations"]["authorization.k8s.io/decision"] == "forbid";
        if forbidden {
            record.refused.insert(deed);
        } else {
            record.done.insert(deed);
        }
    }
    record
}
