//! Secrets with keys. No finding has a value of one.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use serde_json::Value;

use super::super::facts::{Facts, Resource};
use super::super::finding::{Outcome, Problem, failed, warning};

const ROOT_KEY: &str = "sandbox-operator-root-key";
const ROOT_KEY_BYTES: usize = 32;
const API_KEYS: &str = "sandbox-api-keys";
const MAX_NAME_BYTES: usize = 63;
/// Digits of a SHA-256.
const HASH_DIGITS: usize = 64;

pub(super) fn root_key(facts: &Facts) -> Outcome {
    facts.deployment("controller")?;
    let logs = format!(
        "kubectl -n {} logs deployment/{}-controller",
        facts.namespace, facts.name
    );
    let key = field(facts, ROOT_KEY, "key", &logs)?;
    if key.len() != ROOT_KEY_BYTES {
        let (length, restore) = (
            key.len(),
            "restore the Secret from a backup (docs/operations.md)",
        );
        let finding =
            format!("Secret {ROOT_KEY}: the key has {length} bytes, not {ROOT_KEY_BYTES}");
        return Err(failed(finding, restore));
    }
    Ok(format!("Secret {ROOT_KEY} has a key"))
}

pub(super) fn api_keys(facts: &Facts) -> Outcome {
    facts.deployment("gateway")?;
    let action = "create an API key (docs/install.md)";
    let records = field(facts, API_KEYS, "keys.json", action)?;
    let edit = format!("kubectl -n {} edit secret {API_KEYS}", facts.namespace);
    let Ok(Value::Array(records)) = serde_json::from_slice(&records) else {
        let finding = format!("Secret {API_KEYS}: keys.json is not a JSON list of API keys");
        return Err(failed(finding, edit));
    };
    let valid = records.iter().filter(|record| is_valid(record, facts.now));
    match (valid.count(), records.len()) {
        (0, all) => Err(failed(
            format!("Secret {API_KEYS}: none of {all} records is a valid API key"),
            action,
        )),
        (valid, all) if valid < all => Err(warning(
            format!(
                "Secret {API_KEYS}: {} of {all} records are malformed or expired",
                all - valid
            ),
            edit,
        )),
        (valid, _) => Ok(format!("{valid} API keys")),
    }
}

/// As gateways take it: a name, a SHA-256 in hex, and a time of expiry to come.
fn is_valid(record: &Value, now: Timestamp) -> bool {
    let name = record["name"].as_str().unwrap_or_default();
    let has_name = (1..=MAX_NAME_BYTES).contains(&name.len());
    let hash = record["sha256"].as_str().unwrap_or_default();
    let is_hash = hash.len() == HASH_DIGITS && hash.bytes().all(|byte| byte.is_ascii_hexdigit());
    let is_current = match &record["expiresAt"] {
        Value::Null => true,
        time => time
            .as_str()
            .and_then(|time| time.parse::<Timestamp>().ok())
            .is_some_and(|end| now < end),
    };
    has_name && is_hash && is_current
}

fn field(facts: &Facts, secret: &str, field: &str, action: &str) -> Result<Vec<u8>, Problem> {
    let Some(object) = facts.find(Resource::Secrets, secret)? else {
        return Err(failed(format!("Secret {secret} is absent"), action));
    };
    let value = object["data"][field]
        .as_str()
        .and_then(|text| STANDARD.decode(text).ok());
    value.ok_or_else(|| failed(format!("Secret {secret} has no field {field}"), action))
}
