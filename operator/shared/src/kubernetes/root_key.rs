//! Root key of an installation: one Secret, created by the first process that needs it. A rotation
//! keeps the previous key in it (`docs/decisions/096-root-key-rotation.md`).

pub mod rotation;

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::PostParams;
use kube::{Api, Client};
use ring::rand::{SecureRandom as _, SystemRandom};

use super::client::{CallError, with_timeout};
use crate::keys::{KeyError, Keys, ROOT_KEY_LEN};
use crds::names;

pub const SECRET_NAME: &str = "sandbox-operator-root-key";
/// Fields of the Secret: the key; during a rotation the one before, and the time from which on
/// sandboxes get the new one; after the first rotation the subkey of runtime ids.
const FIELD: &str = "key";
const PREVIOUS_FIELD: &str = "previous";
const SINCE_FIELD: &str = "since";
const RUNTIME_IDS_FIELD: &str = "runtime-ids";

#[derive(Debug, thiserror::Error)]
pub enum RootKeyError {
    #[error("cannot read Secret {SECRET_NAME}")]
    Read(#[source] CallError),
    #[error("cannot read or create Secret {SECRET_NAME}")]
    Make(#[from] CallError),
    #[error("Secret {SECRET_NAME} does not exist yet: the controller creates it")]
    Absent,
    #[error("Secret {SECRET_NAME} has no field {FIELD}")]
    Empty,
    #[error("Secret {SECRET_NAME}: field {SINCE_FIELD} must be a time, as in 2026-01-31T12:00:00Z")]
    Since,
    #[error("the root key is being rotated already: finish that rotation first")]
    Rotating,
    #[error("the root key is not being rotated")]
    NotRotating,
    #[error("Secret {SECRET_NAME} is immutable: replace it by a mutable copy (docs/operations.md)")]
    Immutable,
    #[error("cannot read random bytes from the operating system")]
    Random,
    #[error(transparent)]
    Key(#[from] KeyError),
}

/// Loads the root key of a namespace, creating it if absent, and derives all keys from it. Of
/// several processes that start at once, one creates it and the others read it.
pub async fn load_or_create(client: &Client, namespace: &str) -> Result<Keys, RootKeyError> {
    let api = Api::<Secret>::namespaced(client.clone(), namespace);
    if let Some(secret) = with_timeout(api.get_opt(SECRET_NAME)).await? {
        return derive(&secret);
    }
    let made = new_secret(SECRET_NAME, FIELD, new_key()?);
    match with_timeout(api.create(&PostParams::default(), &made)).await {
        Ok(secret) => derive(&secret),
        Err(error) if error.is_already_exists() => {
            derive(&with_timeout(api.get(SECRET_NAME)).await?)
        }
        Err(error) => Err(error.into()),
    }
}

/// Loads the root key, never creates it: gateways face clients and must not write Secrets.
pub async fn load(client: &Client, namespace: &str) -> Result<Keys, RootKeyError> {
    derive(&read(&Api::namespaced(client.clone(), namespace)).await?)
}

async fn read(api: &Api<Secret>) -> Result<Secret, RootKeyError> {
    let secret = with_timeout(api.get_opt(SECRET_NAME)).await;
    secret
        .map_err(RootKeyError::Read)?
        .ok_or(RootKeyError::Absent)
}

fn derive(secret: &Secret) -> Result<Keys, RootKeyError> {
    let mut keys = Keys::derive(field(secret, FIELD).ok_or(RootKeyError::Empty)?)?;
    if let Some(subkey) = field(secret, RUNTIME_IDS_FIELD) {
        keys = keys.with_runtime_ids(subkey);
    }
    if let Some(root) = field(secret, PREVIOUS_FIELD) {
        keys = keys.with_previous(root, since(secret)?)?;
    }
    Ok(keys)
}

fn field<'a>(secret: &'a Secret, name: &str) -> Option<&'a [u8]> {
    Some(&secret.data.as_ref()?.get(name)?.0)
}

fn since(secret: &Secret) -> Result<Timestamp, RootKeyError> {
    let text = field(secret, SINCE_FIELD).and_then(|text| str::from_utf8(text).ok());
    let time = text.and_then(|text| text.parse().ok());
    time.ok_or(RootKeyError::Since)
}

fn new_key() -> Result<Vec<u8>, RootKeyError> {
    let mut key = vec![0; ROOT_KEY_LEN];
    SystemRandom::new()
        .fill(&mut key)
        .map_err(|_| RootKeyError::Random)?;
    Ok(key)
}

/// Secret with one field, which the installation has made itself.
pub fn new_secret(name: &str, field: &str, value: Vec<u8>) -> Secret {
    let labels = [(names::MANAGED_BY_LABEL, names::CONTROLLER_FIELD_MANAGER)];
    Secret {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            labels: Some(labels.map(|(k, v)| (k.into(), v.into())).into()),
            ..ObjectMeta::default()
        },
        data: Some(BTreeMap::from([(field.to_owned(), ByteString(value))])),
        ..Secret::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use testing::FakeApi;

    #[tokio::test]
    async fn second_process_loads_existing_root_key() {
        let api = FakeApi::default();
        let (one, two) = (api.client(), api.client());
        let early = load(&one, "ns").await;
        assert!(matches!(early, Err(RootKeyError::Absent)));
        assert!(api.objects().is_empty(), "loading creates nothing");
        let (a, b) = tokio::join!(load_or_create(&one, "ns"), load_or_create(&two, "ns"));
        let again = load(&one, "ns").await.unwrap();
        let key = |keys: &Keys| keys.of(None).session_key("uid");
        assert_eq!(key(&a.unwrap()), key(&again));
        assert_eq!(key(&b.unwrap()), key(&again));
    }
}
