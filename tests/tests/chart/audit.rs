//! Requests of the chart's service accounts, by the audit log.

use std::collections::BTreeSet;

use tests::audit::{deed, events, verb_and_resource};

/// Requests of a service account in a namespace, and the forbidden ones among them.
#[derive(Debug, Default)]
pub(crate) struct Record {
    pub(crate) done: BTreeSet<String>,
    pub(crate) refused: BTreeSet<String>,
}

/// Reads the log of the cluster: what an account did in a namespace, or, with none, in no namespace.
pub(crate) fn record(account: &str, namespace: Option<&str>) -> Record {
    let mut record = Record::default();
    for event in events() {
        let object = &event["objectRef"];
        if event["user"]["username"] != account
            || object["resource"].is_null()
            || object["namespace"].as_str() != namespace
        {
            continue;
        }
        let (verb, resource) = verb_and_resource(&event);
        let group = object["apiGroup"].as_str().unwrap_or_default();
        // A patch that creates its object needs the right to create it.
        if verb == "patch" && event["responseStatus"]["code"] == 201 {
            record.done.insert(deed("create", group, &resource));
        }
        let deed = deed(&verb, group, &resource);
        // A Pod of a namespace with rules, or one of these tests, may be refused for other reasons.
        if event["annotations"]["authorization.k8s.io/decision"] == "forbid" {
            record.refused.insert(deed);
        } else {
            record.done.insert(deed);
        }
    }
    record
}
