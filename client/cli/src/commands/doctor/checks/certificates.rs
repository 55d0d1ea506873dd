//! Ingress of the gateway, and the certificates of Ingress and gateways.

mod pair;

use serde_json::Value;

use super::super::facts::{Facts, Resource, certificate_secrets};
use super::super::finding::{Outcome, Problem, failed, skipped, warning};

fn object(facts: &Facts) -> Result<&Value, Problem> {
    let found = facts.find(Resource::Ingresses, &facts.name)?;
    found.ok_or_else(|| skipped("the release has no Ingress"))
}

pub(super) fn ingress(facts: &Facts) -> Outcome {
    let (ingress, service) = (object(facts)?, format!("{}-gateway", facts.name));
    let rules = ingress["spec"]["rules"].as_array();
    let is_led = rules.is_some_and(|rules| {
        rules.iter().all(|rule| {
            let path = &rule["http"]["paths"][0];
            path["backend"]["service"]["name"] == service.as_str()
        })
    });
    if is_led {
        return Ok(format!("Ingress {} leads to {service}", facts.name));
    }
    Err(failed(
        format!("Ingress {} does not lead to Service {service}", facts.name),
        "helm upgrade the release",
    ))
}

pub(super) fn check(facts: &Facts) -> Outcome {
    facts.deployment("gateway")?;
    let names = certificate_secrets(facts);
    if names.is_empty() {
        return Err(skipped("neither Ingress nor gateways name a certificate"));
    }
    for name in &names {
        secret(facts, name)?;
    }
    let last = names.join(", ");
    Ok(format!("certificate and key are valid in Secret {last}"))
}

fn secret(facts: &Facts, name: &str) -> Result<(), Problem> {
    let namespace = &facts.namespace;
    // Replaces a Secret as well as it creates one.
    let action = format!(
        "kubectl -n {namespace} create secret tls {name} --cert FILE --key FILE --dry-run=client -o yaml | kubectl apply -f -"
    );
    let Some(secret) = facts.find(Resource::Secrets, name)? else {
        return Err(failed(format!("Secret {name} is absent"), action));
    };
    let pair = pair::read(secret, facts.now);
    let pair = pair.map_err(|cause| failed(format!("Secret {name}: {cause}"), action.clone()))?;
    for host in &facts.hosts {
        if !pair.covers(&host.name) {
            let finding = format!("Secret {name}: the certificate is not for {}", host.name);
            return Err(failed(finding, action));
        }
    }
    match pair.expiry {
        Some(end) => Err(warning(
            format!("Secret {name}: the certificate expires on {end}"),
            action,
        )),
        None => Ok(()),
    }
}
