//! What the API server's audit log says that somebody wrote.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::Value;

/// How often each thing was done: `create pods 201`.
pub(crate) type Writes = BTreeMap<String, usize>;

/// Everything that was written under a name.
pub(crate) fn writes(name: &str) -> Writes {
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
        let part = text(&object["subresource"]);
        let slash = if part.is_empty() { "" } else { "/" };
        let resource = text(&object["resource"]);
        let code = &event["responseStatus"]["code"];
        let deed = format!("{verb} {resource}{slash}{part} {code}");
        *writes.entry(deed).or_default() += 1;
    }
    writes
}
