//! Deployments of the operator.

use super::super::facts::{Facts, Resource};
use super::super::finding::{Outcome, failed, warning};

pub(super) fn controller(facts: &Facts) -> Outcome {
    check(facts, "controller")
}

pub(super) fn gateway(facts: &Facts) -> Outcome {
    check(facts, "gateway")
}

fn check(facts: &Facts, component: &str) -> Outcome {
    let (name, namespace) = (format!("{}-{component}", facts.name), &facts.namespace);
    let Some(deployment) = facts.find(Resource::Deployments, &name)? else {
        return Err(failed(
            format!("Deployment {name} is absent from namespace {namespace}"),
            "check --operator-namespace and --release, or install the chart (docs/install.md)",
        ));
    };
    let wanted = deployment["spec"]["replicas"].as_u64().unwrap_or(1);
    let available = deployment["status"]["availableReplicas"]
        .as_u64()
        .unwrap_or(0);
    if wanted == 0 {
        return Err(failed(
            format!("Deployment {name} has 0 replicas"),
            format!("kubectl -n {namespace} scale deployment {name} --replicas 2"),
        ));
    }
    let finding = format!("{available} of {wanted} replicas of {name} are available");
    let action = format!("kubectl -n {namespace} describe deployment {name}");
    if available == 0 {
        return Err(failed(finding, action));
    }
    if available < wanted {
        return Err(warning(finding, action));
    }
    let label = &deployment["metadata"]["labels"]["app.kubernetes.io/version"];
    let (version, own) = (
        label.as_str().unwrap_or("unknown"),
        env!("CARGO_PKG_VERSION"),
    );
    if version != own {
        return Err(warning(
            format!("{name} has version {version}, this program {own}"),
            "use the program of the installed version",
        ));
    }
    Ok(finding)
}
