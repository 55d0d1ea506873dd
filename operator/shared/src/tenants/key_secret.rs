//! The Secret of API keys: reads it, and changes it with retries after conflicts.

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{ObjectMeta, PostParams};
use kube::{Api, Client};

use super::key_document::{KeyDocument, KeyDocumentError};
use super::{SECRET_KEY, SECRET_NAME};
use crate::kubernetes::client::{CallError, with_timeout};

/// Attempts to change the Secret after conflicts.
const MAX_UPDATE_ATTEMPTS: u32 = 5;

#[derive(Debug, thiserror::Error)]
pub enum KeySecretError {
    #[error(transparent)]
    Document(#[from] KeyDocumentError),
    #[error("Secret {SECRET_NAME}: {0}")]
    Call(#[from] CallError),
    #[error("Secret {SECRET_NAME} keeps changing; try again")]
    Contended,
}

pub fn secrets(client: &Client, namespace: &str) -> Api<Secret> {
    Api::namespaced(client.clone(), namespace)
}

/// Changes the Secret, created if absent, with retries after conflicts.
pub async fn update_secret<T>(
    client: &Client,
    namespace: &str,
    change: impl Fn(&mut KeyDocument) -> Result<T, KeyDocumentError>,
) -> Result<T, KeySecretError> {
    let api = secrets(client, namespace);
    for _ in 0..MAX_UPDATE_ATTEMPTS {
        let found = with_timeout(api.get_opt(SECRET_NAME)).await?;
        let mut document = found.as_ref().map(read).transpose()?.unwrap_or_default();
        let before = document.clone();
        let changed = change(&mut document)?;
        if document == before {
            return Ok(changed);
        }
        match store(&api, found, &document).await? {
            Ok(()) => return Ok(changed),
            Err(error) if error.is_conflict() || error.is_already_exists() => {}
            Err(error) => return Err(error.into()),
        }
    }
    Err(KeySecretError::Contended)
}

/// Loads the keys; `None` if the Secret does not exist.
pub async fn load_document(
    client: &Client,
    namespace: &str,
) -> Result<Option<KeyDocument>, KeySecretError> {
    let secret = with_timeout(secrets(client, namespace).get_opt(SECRET_NAME)).await?;
    Ok(secret.as_ref().map(read).transpose()?)
}

pub fn read(secret: &Secret) -> Result<KeyDocument, KeyDocumentError> {
    let json = secret.data.as_ref().and_then(|data| data.get(SECRET_KEY));
    Ok(json
        .map(|json| KeyDocument::read(&json.0))
        .transpose()?
        .unwrap_or_default())
}

/// Writes the Secret if it has not changed since it was read.
async fn store(
    api: &Api<Secret>,
    found: Option<Secret>,
    document: &KeyDocument,
) -> Result<Result<(), CallError>, KeyDocumentError> {
    let params = PostParams::default();
    let is_new = found.is_none();
    let mut secret = found.unwrap_or_else(|| Secret {
        metadata: ObjectMeta {
            name: Some(SECRET_NAME.into()),
            ..ObjectMeta::default()
        },
        ..Secret::default()
    });
    let data = secret.data.get_or_insert_default();
    data.insert(SECRET_KEY.into(), ByteString(document.write()?));
    let written = if is_new {
        with_timeout(api.create(&params, &secret)).await
    } else {
        with_timeout(api.replace(SECRET_NAME, &params, &secret)).await
    };
    Ok(written.map(|_| ()))
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use testing::FakeApi;

    use super::super::record::RawRecord;
    use super::*;

    #[tokio::test]
    async fn concurrent_updates_of_the_secret_are_all_kept() {
        let api = FakeApi::default();
        let client = api.client();
        let record = RawRecord {
            name: "a".into(),
            ..RawRecord::default()
        };
        let create =
            |document: &mut KeyDocument| document.create(record.clone(), Timestamp::UNIX_EPOCH);
        let first = update_secret(&client, "ns", create).await.unwrap();
        let (other, second) = (api.client(), api.client());
        let (a, b) = tokio::join!(
            update_secret(&other, "ns", create),
            update_secret(&second, "ns", create)
        );
        let secret = secrets(&client, "ns").get(SECRET_NAME).await.unwrap();
        let ids: Vec<_> = read(&secret)
            .unwrap()
            .list()
            .into_iter()
            .map(|k| k.id)
            .collect();
        for made in [first, a.unwrap(), b.unwrap()] {
            assert!(ids.contains(&made.id), "nothing is overwritten");
        }
    }
}
