//! The root key: one Secret, made by whichever process needs it first.

use std::collections::BTreeMap;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::PostParams;
use kube::{Api, Client};
use ring::rand::{SecureRandom as _, SystemRandom};

use super::client::{CallError, bounded};
use crate::keys::{KeyError, Keys, ROOT_KEY_LEN};
use crds::names;

/// Name of the Secret.
pub const SECRET: &str = "sandbox-operator-root-key";
/// Field of the Secret that holds the key.
const FIELD: &str = "key";

/// Why there is no root key.
#[derive(Debug, thiserror::Error)]
pub enum RootKeyError {
    #[error("Secret {SECRET} cannot be read")]
    Read(#[source] CallError),
    #[error("Secret {SECRET} cannot be read or made")]
    Make(#[from] CallError),
    #[error("Secret {SECRET} is not there yet: a controller makes it")]
    Absent,
    #[error("Secret {SECRET} has no field {FIELD}")]
    Empty,
    #[error("no randomness")]
    Random,
    #[error(transparent)]
    Key(#[from] KeyError),
}

/// Loads the root key of a namespace, creating it if absent, and derives all keys from it. Of
/// several processes that start at once, one creates it and the others read that one.
pub async fn load_or_create(client: &Client, namespace: &str) -> Result<Keys, RootKeyError> {
    let api = Api::<Secret>::namespaced(client.clone(), namespace);
    if let Some(secret) = bounded(api.get_opt(SECRET)).await? {
        return derive(&secret);
    }
    match bounded(api.create(&PostParams::default(), &fresh()?)).await {
        Ok(secret) => derive(&secret),
        Err(error) if error.is_already_exists() => derive(&bounded(api.get(SECRET)).await?),
        Err(error) => Err(error.into()),
    }
}

/// Loads the root key that a controller has made. Gateways face clients, so they need not be allowed
/// to create Secrets.
pub async fn load(client: &Client, namespace: &str) -> Result<Keys, RootKeyError> {
    let api = Api::<Secret>::namespaced(client.clone(), namespace);
    let secret = bounded(api.get_opt(SECRET)).await;
    let secret = secret.map_err(RootKeyError::Read)?;
    derive(&secret.ok_or(RootKeyError::Absent)?)
}

fn derive(secret: &Secret) -> Result<Keys, RootKeyError> {
    let data = secret.data.as_ref().and_then(|data| data.get(FIELD));
    Ok(Keys::derive(&data.ok_or(RootKeyError::Empty)?.0)?)
}

fn fresh() -> Result<Secret, RootKeyError> {
    let mut key = vec![0; ROOT_KEY_LEN];
    SystemRandom::new()
        .fill(&mut key)
        .map_err(|_| RootKeyError::Random)?;
    Ok(Secret {
        metadata: ObjectMeta {
            name: Some(SECRET.into()),
            labels: Some(BTreeMap::from([(
                names::MANAGED_BY_LABEL.into(),
                names::CONTROLLER.into(),
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
    use crate::kubernetes::fake::FakeApi;

    #[tokio::test]
    async fn whoever_comes_second_takes_the_first_ones_key() {
        let api = FakeApi::default();
        let (one, two) = (api.client(), api.client());
        let early = load(&one, "ns").await;
        assert!(matches!(early, Err(RootKeyError::Absent)));
        assert!(api.objects().is_empty(), "who only reads makes none");
        let (a, b) = tokio::join!(load_or_create(&one, "ns"), load_or_create(&two, "ns"));
        let again = load(&one, "ns").await.unwrap();
        let key = |keys: &Keys| keys.session_key("uid");
        assert_eq!(key(&a.unwrap()), key(&again));
        assert_eq!(key(&b.unwrap()), key(&again));
    }
}
