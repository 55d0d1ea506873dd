//! `sandbox-operator keys ensure`: the first key of an installation. Its text is in a Secret of its
//! own, for the application that uses it; an existing Secret determines the key.
//!
//! A chart cannot generate it: the value would change with every render without a cluster.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;
use kube::Client;
use kube::api::PostParams;

use shared::kubernetes::client::with_timeout;
use shared::kubernetes::root_key;
use shared::tenants::key_commands::CreateArgs;
use shared::tenants::key_document::{KeyDocument, generate_key};
use shared::tenants::key_secret::{load_document, secrets, update_secret};
use shared::tenants::{DEFAULT_KEY_FIELD, DEFAULT_KEY_SECRET};

#[derive(Debug, Clone, clap::Args)]
pub(super) struct EnsureArgs {
    #[command(flatten)]
    key: CreateArgs,
    /// Secret with the text of the key.
    #[arg(long, default_value = DEFAULT_KEY_SECRET)]
    secret: String,
    /// Field of that Secret.
    #[arg(long, default_value = DEFAULT_KEY_FIELD)]
    field: String,
}

impl EnsureArgs {
    pub(super) async fn run(&self, client: &Client, namespace: &str) -> anyhow::Result<()> {
        let key = self.text(client, namespace).await?;
        let record = self.key.record();
        let adopt = |document: &mut KeyDocument| {
            if !document.has_key(key.trim_end()) {
                document.validate_name(&record.name)?;
            }
            document.add_existing(record.clone(), key.trim_end(), Timestamp::now())
        };
        update_secret(client, namespace, adopt).await?;
        println!("the key in Secret {} works", self.secret);
        Ok(())
    }

    /// Returns the key from the Secret, which is created if absent.
    async fn text(&self, client: &Client, namespace: &str) -> anyhow::Result<String> {
        let api = secrets(client, namespace);
        if let Some(found) = with_timeout(api.get_opt(&self.secret)).await? {
            return self.read(&found);
        }
        let document = load_document(client, namespace).await?;
        document.unwrap_or_default().validate_name(&self.key.name)?;
        let key = generate_key()?.into_bytes();
        let made = root_key::new_secret(&self.secret, &self.field, key);
        match with_timeout(api.create(&PostParams::default(), &made)).await {
            Ok(made) => self.read(&made),
            Err(error) if error.is_already_exists() => {
                self.read(&with_timeout(api.get(&self.secret)).await?)
            }
            Err(error) => Err(error.into()),
        }
    }

    fn read(&self, secret: &Secret) -> anyhow::Result<String> {
        let Self {
            secret: name,
            field,
            ..
        } = self;
        let text = secret.data.as_ref().and_then(|data| data.get(field));
        let text = text.ok_or_else(|| anyhow::anyhow!("Secret {name} has no field {field}"))?;
        String::from_utf8(text.0.clone())
            .map_err(|_| anyhow::anyhow!("field {field} of Secret {name} is not text"))
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use serde_json::json;

    use k8s_openapi::ByteString;

    use super::*;
    use shared::tenants::{SECRET_NAME, key_secret};
    use testing::FakeApi;

    #[derive(Debug, Parser)]
    struct TestArgs {
        #[command(flatten)]
        ensure: EnsureArgs,
    }

    fn ensure(name: &str) -> EnsureArgs {
        TestArgs::try_parse_from(["x", name, "--secret=mine"])
            .unwrap()
            .ensure
    }

    async fn hashes(client: &Client) -> Vec<String> {
        let secret = secrets(client, "ns").get(SECRET_NAME).await.unwrap();
        let listed = key_secret::read(&secret).unwrap().list();
        listed.into_iter().map(|l| l.record.sha256).collect()
    }

    #[tokio::test]
    async fn ensure_creates_key_once() {
        let api = FakeApi::default();
        let client = api.client();
        ensure("a").run(&client, "ns").await.unwrap();
        let (first, objects) = (hashes(&client).await, api.objects());
        assert_eq!((first.len(), objects.len()), (1, 2));
        ensure("a").run(&client, "ns").await.unwrap();
        assert_eq!(hashes(&client).await, first);
        assert_eq!(api.objects().len(), 2);
    }

    #[tokio::test]
    async fn existing_invalid_name_stays_usable() {
        let api = FakeApi::default();
        let client = api.client();
        let refused = ensure("Team A").run(&client, "ns").await.unwrap_err();
        assert!(refused.to_string().contains("as in team-a"), "{refused}");
        assert!(api.objects().is_empty(), "no key that does not work");

        let old = ensure("Team A").key.record();
        let make = |document: &mut KeyDocument| document.create(old.clone(), Timestamp::UNIX_EPOCH);
        update_secret(&client, "ns", make).await.unwrap();
        ensure("Team A").run(&client, "ns").await.unwrap();
        assert_eq!(hashes(&client).await.len(), 2, "a second key of that name");

        let revoke = |document: &mut KeyDocument| document.revoke("Team A");
        update_secret(&client, "ns", revoke).await.unwrap();
        let refused = ensure("Team A").run(&client, "ns").await.unwrap_err();
        assert!(refused.to_string().contains("as in team-a"), "{refused}");
        ensure("team-a").run(&client, "ns").await.unwrap();
        ensure("Team A").run(&client, "ns").await.unwrap();
        assert_eq!(hashes(&client).await.len(), 1, "that key exists");
    }

    #[tokio::test]
    async fn ensure_adopts_existing_key() {
        let api = FakeApi::default();
        let client = api.client();
        let put = |text: &str| {
            let data = json!({"key": ByteString(text.into())});
            let secret = json!({"metadata": {"name": "mine"}, "data": data});
            api.put("/api/v1/namespaces/ns/secrets/mine", secret)
        };
        put("short");
        let refused = ensure("a").run(&client, "ns").await.unwrap_err();
        assert!(refused.to_string().contains("at least 16 bytes"));

        put("an existing api key\n");
        ensure("a").run(&client, "ns").await.unwrap();
        let expected = data_encoding::HEXLOWER
            .encode(ring::digest::digest(&ring::digest::SHA256, b"an existing api key").as_ref());
        assert_eq!(hashes(&client).await, [expected]);
    }
}
