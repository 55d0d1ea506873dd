//! Reads of everything that checks need. All have timeouts.

mod hosts;
mod places;
mod rights;

use std::collections::BTreeMap;

use futures::StreamExt as _;
use futures::stream;
use jiff::Timestamp;
use kube::Client;
use serde_json::Value;

use self::places::{Place, place};
use super::facts::{Facts, Resource};
use crate::installation::{Installation, variable};
use crate::kubernetes::{self, ReadError};

/// Requests at once.
const CONCURRENCY: usize = 8;
/// Objects of one kind; more are not looked at.
const MAX_OBJECTS: usize = 500;

/// The other reads depend on what these say.
const FIRST: [Resource; 2] = [Resource::Deployments, Resource::Ingresses];
const SECOND: [Resource; 12] = [
    Resource::Crds,
    Resource::Leases,
    Resource::Secrets,
    Resource::StorageClasses,
    Resource::Namespaces,
    Resource::OwnPolicies,
    Resource::Services,
    Resource::EndpointSlices,
    Resource::HttpRoutes,
    Resource::ProbeRecords,
    Resource::RuntimeClasses,
    Resource::Nodes,
];
/// Of an operator that serves one namespace.
const OF_SANDBOXES: [Resource; 3] = [
    Resource::SandboxPolicies,
    Resource::Quotas,
    Resource::LimitRanges,
];

pub(super) async fn gather(installation: &Installation) -> Facts {
    let mut facts = Facts {
        name: installation.name(),
        namespace: installation.namespace().to_owned(),
        sandboxes: None,
        version: Err(String::new()),
        clock_ahead: None,
        now: Timestamp::now(),
        objects: BTreeMap::new(),
        rights: Vec::new(),
        hosts: Vec::new(),
    };
    let client = match installation.connect().await {
        Ok(client) => client,
        Err(error) => {
            facts.version = Err(error);
            return facts;
        }
    };
    match kubernetes::get(&client, "/version").await {
        Ok(response) => {
            if let Some(date) = response.date {
                facts.clock_ahead = Some(date.duration_since(Timestamp::now()).as_secs_f64());
                facts.now = date;
            }
            facts.version = Ok(response.body);
        }
        Err(error) => {
            facts.version = Err(error.to_string());
            return facts;
        }
    }
    facts.objects = objects(&client, &facts, &FIRST).await;
    let gateway = facts.deployment("gateway").ok();
    let sandboxes = gateway.and_then(|gateway| variable(gateway, "SANDBOX_NAMESPACE"));
    facts.sandboxes = sandboxes.map(Into::into);
    let of_sandboxes = facts.sandboxes.as_ref().map_or(&[][..], |_| &OF_SANDBOXES);
    let resources = [&SECOND[..], of_sandboxes].concat();
    let (objects, rights, hosts) = tokio::join!(
        objects(&client, &facts, &resources),
        rights::read(&client, &facts),
        hosts::resolve(&facts),
    );
    facts.objects.extend(objects);
    facts.rights = rights;
    facts.hosts = hosts;
    facts
}

async fn objects(
    client: &Client,
    facts: &Facts,
    resources: &[Resource],
) -> BTreeMap<Resource, Result<Vec<Value>, ReadError>> {
    let reads: Vec<_> = resources
        .iter()
        .map(|kind| (*kind, place(*kind, facts)))
        .collect();
    stream::iter(reads)
        .map(|(kind, place)| async move { (kind, read(client, &place).await) })
        .buffered(CONCURRENCY)
        .collect()
        .await
}

async fn read(client: &Client, place: &Place) -> Result<Vec<Value>, ReadError> {
    let Some(names) = &place.names else {
        let path = format!("{}?limit={MAX_OBJECTS}", place.collection);
        let mut body = kubernetes::get(client, &path).await?.body;
        return match body["items"].take() {
            Value::Array(items) => Ok(items),
            _ => Ok(Vec::new()),
        };
    };
    let mut found = Vec::new();
    for name in names {
        match kubernetes::get(client, &format!("{}/{name}", place.collection)).await {
            Ok(response) => found.push(response.body),
            Err(ReadError::NotFound(_)) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(found)
}
