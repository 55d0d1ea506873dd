//! Root key of an installation: one Secret, created by the first process that needs it.

use std::collections::BTreeMap;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::PostParams;
use kube::{Api, Client};
use ring::rand::{SecureRandom as _, SystemRandom};

use super::client::{CallError, with_timeout};
use crate::keys::{KeyError, Keys, ROOT_KEY_LEN};
use crds::names;

/// Name of the Secret.
pub const SECRET_NAME: &str = "sandbox-operator-root-key";
/// Field of the Secret that holds the key.
const FIELD: &str = "key";

/// Error of loading the root key.
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
    match with_timeout(api.create(&PostParams::default(), &new_secret()?)).await {
        Ok(secret) => derive(&secret),
        Err(error) if error.is_already_exists() => {
            derive(&with_timeout(api.get(SECRET_NAME)).await?)
        }
        Err(error) => Err(error.into()),
    }
}

/// Loads the root key that a controller has created. Gateways face clients and need no permission
/// to create Secrets.
pub async fn load(client: &Client, namespace: &str) -> Result<Keys, RootKeyError> {
    let api = Api::<Secret>::namespaced(client.clone(), namespace);
    let secret = with_timeout(api.get_opt(SECRET_NAME)).await;
    let secret = secret.map_err(RootKeyError::Read)?;
    derive(&secret.ok_or(RootKeyError::Absent)?)
}

fn derive(secret: &Secret) -> Result<Keys, RootKeyError> {
    let data = secret.data.as_ref().and_then(|data| data.get(FIELD));
    Ok(Keys::derive(&data.ok_or(RootKeyError::Empty)?.0)?)
}

fn new_secret() -> Result<Secret, RootKeyError> {
    let mut key = vec![0; ROOT_KEY_LEN];
    SystemRandom::new()
        .fill(&mut key)
        .map_err(|_| RootKeyError::Random)?;
    Ok(Secret {
        metadata: ObjectMeta {
            name: Some(SECRET_NAME.into()),
            labels: Some(BTreeMap::from([(
                names::MANAGED_BY_LABEL.into(),
                names::CONTROLLER_FIELD_MANAGER.into(),
            )])),
            ..ObjectMeta::default()
        },
        data: Some(BTreeMap::from([(FIELD.into(), ByteString(key))])),
        immutable: Some(true),
        ..Secret::default()
    })
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
        let key = |keys: &Keys| keys.session_key("uid");
        assert_eq!(key(&a.unwrap()), key(&again));
        assert_eq!(key(&b.unwrap()), key(&again));
    }
}
