//! The API server's audit log: who did what, and what was refused.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::cli_tools::cluster_directory;

/// Number of each kind of write, for example `create pods 201`.
pub type Writes = BTreeMap<String, usize>;

/// Everything that was written under a name.
pub fn writes(name: &str) -> Writes {
    tally(done(name).map(|(deed, _)| deed))
}

/// Returns the writes of a user to objects of this name.
pub fn writes_to(name: &str, object: &str) -> Writes {
    let theirs = done(name).filter(|(_, written)| written == object);
    tally(theirs.map(|(deed, _)| deed))
}

/// Number of writes of one kind by a user, for each name of an object.
pub fn writes_by_object(name: &str, deed: &str) -> Writes {
    let theirs = done(name).filter(|(done, _)| done == deed);
    tally(theirs.map(|(_, object)| object))
}

/// All events of the log. The last line may be half written.
pub fn events() -> Vec<Value> {
    let log = cluster_directory().join("log/audit.jsonl");
    let log = std::fs::read_to_string(log).unwrap();
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

/// Each write of a user, with the name of its object.
fn done(name: &str) -> impl Iterator<Item = (String, String)> {
    let events = events().into_iter();
    events.filter_map(move |event| {
        let (verb, resource) = verb_and_resource(&event);
        let reads = ["get", "list", "watch"].contains(&&*verb);
        let theirs = event["impersonatedUser"]["username"] == name;
        let code = &event["responseStatus"]["code"];
        let object = event["objectRef"]["name"].as_str().unwrap_or_default();
        (theirs && !reads).then(|| (format!("{verb} {resource} {code}"), object.to_owned()))
    })
}

fn tally(texts: impl Iterator<Item = String>) -> Writes {
    let mut writes = Writes::new();
    for text in texts {
        *writes.entry(text).or_default() += 1;
    }
    writes
}
