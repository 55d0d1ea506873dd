//! Rotation of the root key: begin, and end.

use jiff::Timestamp;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::api::PostParams;
use kube::{Api, Client};

use super::{
    FIELD, PREVIOUS_FIELD, RUNTIME_IDS_FIELD, RootKeyError, SECRET_NAME, SINCE_FIELD, derive,
    field, new_key, read, since,
};
use crate::keys::runtime_id_subkey;
use crate::kubernetes::client::with_timeout;

/// Stores a new root key, used by sandboxes from `since` on: every process must have it by then.
pub async fn begin(client: &Client, namespace: &str, since: Timestamp) -> Result<(), RootKeyError> {
    let api = Api::<Secret>::namespaced(client.clone(), namespace);
    let mut secret = read(&api).await?;
    if field(&secret, PREVIOUS_FIELD).is_some() {
        return Err(RootKeyError::Rotating);
    }
    let present = field(&secret, FIELD).ok_or(RootKeyError::Empty)?.to_vec();
    let runtime_ids = runtime_id_subkey(&present)?;
    let since = since.strftime("%FT%TZ").to_string();
    let data = secret.data.get_or_insert_default();
    // After the first rotation it is that of the first key.
    data.entry(RUNTIME_IDS_FIELD.into())
        .or_insert_with(|| ByteString(runtime_ids.to_vec()));
    data.insert(FIELD.into(), ByteString(new_key()?));
    data.insert(PREVIOUS_FIELD.into(), ByteString(present));
    data.insert(SINCE_FIELD.into(), ByteString(since.into_bytes()));
    replace(&api, &secret).await
}

/// Returns the time from which on sandboxes have the new root key.
pub async fn time(client: &Client, namespace: &str) -> Result<Timestamp, RootKeyError> {
    let secret = read(&Api::namespaced(client.clone(), namespace)).await?;
    field(&secret, PREVIOUS_FIELD).ok_or(RootKeyError::NotRotating)?;
    since(&secret)
}

/// Removes the previous root key.
pub async fn finish(client: &Client, namespace: &str) -> Result<(), RootKeyError> {
    let api = Api::<Secret>::namespaced(client.clone(), namespace);
    let mut secret = read(&api).await?;
    let data = secret.data.get_or_insert_default();
    data.remove(PREVIOUS_FIELD)
        .ok_or(RootKeyError::NotRotating)?;
    data.remove(SINCE_FIELD);
    replace(&api, &secret).await
}

/// Writes the Secret, unless it has changed since it was read or cannot be used.
async fn replace(api: &Api<Secret>, secret: &Secret) -> Result<(), RootKeyError> {
    if secret.immutable == Some(true) {
        return Err(RootKeyError::Immutable);
    }
    derive(secret)?;
    with_timeout(api.replace(SECRET_NAME, &PostParams::default(), secret)).await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kubernetes::root_key::{load, load_or_create};
    use testing::FakeApi;

    #[tokio::test]
    async fn rotation_keeps_ids_and_old_sandboxes_until_it_is_finished() {
        let client = FakeApi::default().client();
        let at = |second| Timestamp::from_second(second).unwrap();
        let early = begin(&client, "ns", at(100)).await;
        assert!(matches!(early, Err(RootKeyError::Absent)));
        let first = load_or_create(&client, "ns").await.unwrap();
        let early = finish(&client, "ns").await;
        assert!(matches!(early, Err(RootKeyError::NotRotating)));

        begin(&client, "ns", at(100)).await.unwrap();
        assert_eq!(time(&client, "ns").await.unwrap(), at(100));
        let again = begin(&client, "ns", at(200)).await;
        assert!(matches!(again, Err(RootKeyError::Rotating)));
        let both = load(&client, "ns").await.unwrap();
        finish(&client, "ns").await.unwrap();
        let last = load(&client, "ns").await.unwrap();
        let key = |keys: &crate::keys::Keys, created| keys.of(Some(at(created))).session_key("uid");
        assert_eq!(key(&both, 99), key(&first, 99));
        assert_eq!(key(&both, 100), key(&last, 100));
        assert_ne!(key(&first, 99), key(&last, 99));
        // Another rotation keeps the ids of the first key, not of its own.
        begin(&client, "ns", at(300)).await.unwrap();
        for keys in [&both, &last, &load(&client, "ns").await.unwrap()] {
            assert_eq!(
                keys.object_runtime_id("uid"),
                first.object_runtime_id("uid")
            );
        }
    }

    #[tokio::test]
    async fn secret_that_cannot_be_rotated_stays_as_it_is() {
        let client = FakeApi::default().client();
        load_or_create(&client, "ns").await.unwrap();
        let api: Api<Secret> = Api::namespaced(client.clone(), "ns");
        let mut secret = read(&api).await.unwrap();
        secret.immutable = Some(true);
        let params = PostParams::default();
        let stored = api.replace(SECRET_NAME, &params, &secret).await.unwrap();
        let refused = begin(&client, "ns", Timestamp::UNIX_EPOCH).await;
        assert!(matches!(refused, Err(RootKeyError::Immutable)));
        assert_eq!(read(&api).await.unwrap(), stored);

        let data = secret.data.get_or_insert_default();
        data.insert(PREVIOUS_FIELD.into(), ByteString(vec![1; 32]));
        for since in [None, Some("soon")] {
            let data = secret.data.get_or_insert_default();
            data.extend(since.map(|text| (SINCE_FIELD.into(), ByteString(text.into()))));
            assert!(
                matches!(derive(&secret), Err(RootKeyError::Since)),
                "{since:?}"
            );
        }
    }
}
