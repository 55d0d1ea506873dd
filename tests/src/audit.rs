//! Writes to the API server of a test, read from its audit log.

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

fn count(name: &str, counts: impl Fn(&Value) -> bool) -> Writes {
    let folder = std::env::var("CLUSTER_DIR").unwrap();
    let log = std::fs::read_to_string(Path::new(&folder).join("log/audit.jsonl")).unwrap();
    let mut writes = Writes::new();
    for line in log.lines() {
        // The last one may be half written.
        let Ok(event) = serde_json::from_str::<Value>(line) else {
            continue;
        };
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let verb = text(&event["verb"]);
        let reads = ["get", "list", "watch"].contains(&&*verb);
        if reads || event["impersonatedUser"]["username"] != name {
            continue;
        }
        let object = &event["objectRef"];
        if !counts(object) {
            continue;
        }
        let part = text(&object["subresource"]);
        let slash = if part.is_empty() { "" } else { "/" };
        let resource = text(&object["resource"]);
        let code = &event["responseStatus"]["code"];
        let deed = format!("{verb} {resource}{slash}{part} {code}");
        *writes.entry(deed).or_default() += 1;
    }
    writes
}
