//! Record of the state directory's API key in the Secret of API keys, where `sandbox-operator keys`
//! lists and revokes it.

use jiff::Timestamp;
use kube::Client;
use operator::tenants::key_document::KeyDocument;
use operator::tenants::key_secret::{KeySecretError, update_secret};
use operator::tenants::record::RawRecord;

use super::NAMESPACE;

/// Tenant of that key.
pub(super) const TENANT: &str = "default";

/// Adds the record unless the Secret has it.
pub(super) async fn register(client: &Client, key: &str) -> Result<(), KeySecretError> {
    let add = |document: &mut KeyDocument| {
        let record = RawRecord {
            name: TENANT.to_owned(),
            ..RawRecord::default()
        };
        document.add_existing(record, key, Timestamp::now())
    };
    update_secret(client, NAMESPACE, add).await
}
