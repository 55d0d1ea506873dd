//! Record of the state directory's API key in the Secret of API keys, where `sandbox-operator keys`
//! lists and revokes it.

use anyhow::Context as _;
use jiff::Timestamp;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::api::PostParams;
use kube::{Api, Client};
use operator::tenants::key_document::KeyDocument;
use operator::tenants::record::RawRecord;
use operator::tenants::{SECRET_KEY, SECRET_NAME};

use super::NAMESPACE;

/// Tenant of the key.
const TENANT: &str = "default";

/// Adds the record unless the Secret has it.
pub(super) async fn register(client: &Client, key: &str) -> anyhow::Result<()> {
    let secrets = Api::<Secret>::namespaced(client.clone(), NAMESPACE);
    let stored = secrets.get_opt(SECRET_NAME).await?;
    let is_new = stored.is_none();
    let mut secret = stored.unwrap_or_default();
    let data = secret.data.get_or_insert_default();
    let mut document = match data.get(SECRET_KEY) {
        Some(json) => KeyDocument::read(&json.0).context(SECRET_NAME)?,
        None => KeyDocument::default(),
    };
    let record = RawRecord {
        name: TENANT.to_owned(),
        ..RawRecord::default()
    };
    document.add_existing(record, key, Timestamp::now())?;
    data.insert(SECRET_KEY.to_owned(), ByteString(document.write()?));
    let parameters = PostParams::default();
    if is_new {
        secret.metadata.name = Some(SECRET_NAME.to_owned());
        secrets.create(&parameters, &secret).await?;
    } else {
        secrets.replace(SECRET_NAME, &parameters, &secret).await?;
    }
    Ok(())
}
