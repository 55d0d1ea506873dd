//! The API server's audit log: who did what, and what was refused.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::Value;

/// Number of each kind of write, for example `create pods 201`.
pub type Writes = BTreeMap<String, usize>;

/// Everything that was written under a name.
pub fn writes(name: &str) -> Writes {
    count(name, |_| true)
}

/// Returns the writes of a user to objects of this name.
pub fn writes_to(name: &str, object: &str) -> Writes {
    count(name, |written| written["name"] == object)
}

/// All events of the log. The last line may be half written.
pub fn events() -> Vec<Value> {
    let folder = std::env::var("CLUSTER_DIR").unwrap();
    let log = std::fs::read_to_string(Path::new(&folder).join("log/audit.jsonl")).unwrap();
    let events = log.lines().map(serde_json::from_str);
    events.filter_map(Result::ok).collect()
}

/// Verb, resource and group of an event, `create pods` or `patch sandboxes.openhands.dev/status`.
pub fn deed(verb: &str, group: &str, resource: &str) -> String {
    let (resource, part) = resource.split_once('/').unwrap_or((resource, ""));
    let prefixed = |prefix: &str, text: &str| match text {
        "" => String::new(),
        text => format!("{prefix}{text}"),
    };
    let (group, part) = (prefixed(".", group), prefixed("/", part));
    format!("{verb} {resource}{group}{part}")
}

/// Verb of an event, and its resource with the part of it.
pub fn verb_and_resource(event: &Value) -> (String, String) {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let object = &event["objectRef"];
    let (resource, part) = (text(&object["resource"]), text(&object["subresource"]));
    let slash = if part.is_empty() { "" } else { "/" };
    (text(&event["verb"]), format!("{resource}{slash}{part}"))
}

fn count(name: &str, counts: impl Fn(&Value) -> bool) -> Writes {
    let mut writes = Writes::new();
    for event in events() {
        let (verb, resource) = verb_and_resource(&event);
        let reads = ["get", "list", "watch"].contains(&&*verb);
        let theirs = event["impersonatedUser"]["username"] == name;
        if theirs && !reads && counts(&event["objectRef"]) {
            let code = &event["responseStatus"]["code"];
            let deed = format!("{verb} {resource} {code}");
            *writes.entry(deed).or_default() += 1;
        }
    }
    writes
}
