//! The `ConfigMap` with the records of all probes, beside the controller's lease.

use std::collections::BTreeMap;
use std::time::Duration;

use crds::names;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::json;
use tokio::time::sleep;

use super::record::ProbeRecord;
use super::runner;
use crate::context::Context;
use shared::kubernetes::client::with_timeout;

/// Name of the object; roles of the chart name it.
pub const PROBE_CONFIG_MAP: &str = "sandbox-operator-cluster-probes";
/// Delay after a read that failed.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// Known records by the names of their probes.
pub(crate) type ProbeRecords = BTreeMap<String, ProbeRecord>;

/// Reads the records of all probes, and waits for an API server that does not answer. A probe without a
/// record runs, as do all if they cannot be read.
pub(super) async fn read(context: &Context) -> ProbeRecords {
    loop {
        let error = match with_timeout(api(context).get_opt(PROBE_CONFIG_MAP)).await {
            Ok(found) => return parse(found),
            Err(error) => error,
        };
        tracing::warn!(config_map = PROBE_CONFIG_MAP, %error, "cannot read the results of cluster probes");
        if error.status().is_some() && !error.is_server_error() {
            return ProbeRecords::new();
        }
        sleep(RETRY_INTERVAL).await;
    }
}

fn parse(found: Option<ConfigMap>) -> ProbeRecords {
    let records = found.and_then(|map| map.data).unwrap_or_default();
    let known = |(name, text): (String, String)| Some((name, serde_json::from_str(&text).ok()?));
    records.into_iter().filter_map(known).collect()
}

/// Writes the record of a probe and leaves the others.
pub(super) async fn write(context: &Context, probe: &str, record: &ProbeRecord) {
    let Ok(text) = serde_json::to_string(record) else {
        return;
    };
    let object = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": PROBE_CONFIG_MAP}, "data": {probe: text},
    });
    // One field manager for each probe: an apply removes what the manager applied before.
    let manager = format!("{}-{probe}", names::CONTROLLER_FIELD_MANAGER);
    let params = PatchParams::apply(&manager).force();
    let api = api(context);
    if let Err(error) =
        with_timeout(api.patch(PROBE_CONFIG_MAP, &params, &Patch::Apply(&object))).await
    {
        tracing::warn!(config_map = PROBE_CONFIG_MAP, %error, "cannot write the result of a cluster probe");
    }
}

fn api(context: &Context) -> Api<ConfigMap> {
    let lease = context.config.leader.as_ref();
    let namespace = lease.map_or_else(|| runner::namespace(context), |it| &it.namespace);
    Api::namespaced(context.client.clone(), namespace)
}
