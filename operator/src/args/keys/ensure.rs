//! `sandbox-operator keys ensure`: the first key of an installation. Its text lies in a Secret of its
//! own, for the application that uses it; whoever brings that Secret along chooses the key.
//!
//! A chart cannot do this: what it makes up would change with every render without a cluster.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::Client;
use kube::api::{ObjectMeta, PostParams};

use super::{Create, change, permit, secrets, stored};
use crate::kubernetes::client::bounded;
use crate::tenants::book::{Book, fresh_key};
use crds::names;

#[derive(Debug, Clone, clap::Args)]
pub(super) struct Ensure {
    #[command(flatten)]
    key: Create,
    /// Secret with the text of the key.
    #[arg(long, default_value = "sandbox-operator-default-key")]
    secret: String,
    /// Field of that Secret.
    #[arg(long, default_value = "key")]
    field: String,
}

impl Ensure {
    pub(super) async fn run(&self, client: &Client, namespace: &str) -> anyhow::Result<()> {
        let key = self.text(client, namespace).await?;
        let record = self.key.record();
        let adopt = |book: &mut Book| {
            if !book.has_key(key.trim_end()) {
                permit(book, &record.name)?;
            }
            Ok(book.adopt(record.clone(), key.trim_end(), Timestamp::now())?)
        };
        change(client, namespace, adopt).await?;
        println!("the key in Secret {} works", self.secret);
        Ok(())
    }

    /// The key as the Secret has it, which is made if it is absent.
    async fn text(&self, client: &Client, namespace: &str) -> anyhow::Result<String> {
        let api = secrets(client, namespace);
        if let Some(found) = bounded(api.get_opt(&self.secret)).await? {
            return self.read(&found);
        }
        let book = stored(client, namespace).await?;
        permit(&book.unwrap_or_default(), &self.key.name)?;
        let made = self.fresh()?;
        match bounded(api.create(&PostParams::default(), &made)).await {
            Ok(made) => self.read(&made),
            Err(error) if error.is_already_exists() => {
                self.read(&bounded(api.get(&self.secret)).await?)
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
            .map_err(|_| anyhow::anyhow!("field {field} of Secret {name} is no text"))
    }

    fn fresh(&self) -> anyhow::Result<Secret> {
        let key = ByteString(fresh_key()?.into_bytes());
        let labels = [(names::MANAGED_BY_LABEL, names::CONTROLLER)];
        Ok(Secret {
            metadata: ObjectMeta {
                name: Some(self.secret.clone()),
                labels: Some(labels.map(|(k, v)| (k.into(), v.into())).into()),
                ..ObjectMeta::default()
            },
            data: Some(BTreeMap::from([(self.field.clone(), key)])),
            ..Secret::default()
        })
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use serde_json::json;

    use super::*;
    use crate::kubernetes::fake::FakeApi;
    use crate::tenants::SECRET;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        ensure: Ensure,
    }

    fn ensure(name: &str) -> Ensure {
        Line::try_parse_from(["x", name, "--secret=mine"])
            .unwrap()
            .ensure
    }

    async fn hashes(client: &Client) -> Vec<String> {
        let secret = secrets(client, "ns").get(SECRET).await.unwrap();
        let listed = super::super::read(&secret).unwrap().list();
        listed.into_iter().map(|l| l.record.sha256).collect()
    }

    #[tokio::test]
    async fn the_key_is_made_once() {
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
    async fn names_of_before_the_rule_go_on() {
        let api = FakeApi::default();
        let client = api.client();
        let refused = ensure("Team A").run(&client, "ns").await.unwrap_err();
        assert!(refused.to_string().contains("as in team-a"), "{refused}");
        assert!(api.objects().is_empty(), "no key that does not work");

        let old = ensure("Team A").key.record();
        let make = |book: &mut Book| Ok(book.create(old.clone(), Timestamp::UNIX_EPOCH)?);
        change(&client, "ns", make).await.unwrap();
        ensure("Team A").run(&client, "ns").await.unwrap();
        assert_eq!(hashes(&client).await.len(), 2, "a second key of that name");

        let revoke = |book: &mut Book| Ok(book.revoke("Team A")?);
        change(&client, "ns", revoke).await.unwrap();
        let refused = ensure("Team A").run(&client, "ns").await.unwrap_err();
        assert!(refused.to_string().contains("as in team-a"), "{refused}");
        ensure("team-a").run(&client, "ns").await.unwrap();
        ensure("Team A").run(&client, "ns").await.unwrap();
        assert_eq!(hashes(&client).await.len(), 1, "that key exists");
    }

    #[tokio::test]
    async fn a_key_that_is_there_is_taken() {
        let client = FakeApi::default().client();
        let put = |text: &str| {
            let data = json!({"key": ByteString(text.into())});
            let secret = json!({"metadata": {"name": "mine"}, "data": data});
            serde_json::from_value::<Secret>(secret).unwrap()
        };
        let api = secrets(&client, "ns");
        let params = PostParams::default();
        api.create(&params, &put("short")).await.unwrap();
        let refused = ensure("a").run(&client, "ns").await.unwrap_err();
        assert!(refused.to_string().contains("at least 16 bytes"));

        api.delete("mine", &kube::api::DeleteParams::default())
            .await
            .unwrap();
        let long = put("a key of somebody's own\n");
        api.create(&params, &long).await.unwrap();
        ensure("a").run(&client, "ns").await.unwrap();
        let expected = crate::tenants::book::hex(
            ring::digest::digest(&ring::digest::SHA256, b"a key of somebody's own").as_ref(),
        );
        assert_eq!(hashes(&client).await, [expected]);
    }
}
