//! Installation of the chart that a kubeconfig leads to.

mod gateway;
mod port_forward;

use std::path::PathBuf;

use kube::Client;
use serde_json::Value;
use shared::kubernetes::client::{Connection, connect};
use shared::kubernetes::error_text::with_sources;

pub(crate) use self::gateway::Gateway;

/// Name of the chart, and by default of its release and namespace.
const CHART: &str = "sandbox-operator";
const MAX_NAME_LEN: usize = 63;

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Options with a kubeconfig")]
pub(crate) struct Installation {
    /// Kubeconfig; by default that of `KUBECONFIG`, or that of a Pod
    #[arg(long, global = true, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig
    #[arg(long, global = true, value_name = "NAME")]
    context: Option<String>,
    /// Namespace of the operator [default: sandbox-operator]
    #[arg(long, global = true, value_name = "NAMESPACE", value_parser = name)]
    operator_namespace: Option<String>,
    /// Name of the Helm release [default: sandbox-operator]
    #[arg(long, global = true, value_name = "NAME", value_parser = name)]
    release: Option<String>,
}

/// Accepts the characters of names in Kubernetes.
fn name(text: &str) -> Result<String, String> {
    let is_part = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '.';
    let is_name = (1..=MAX_NAME_LEN).contains(&text.len()) && text.chars().all(is_part);
    is_name
        .then(|| text.to_owned())
        .ok_or_else(|| "not a name in Kubernetes".into())
}

impl Installation {
    /// Returns whether the command line names a cluster or an installation.
    pub(crate) fn is_chosen(&self) -> bool {
        let names = [&self.context, &self.operator_namespace, &self.release];
        self.kubeconfig.is_some() || names.iter().any(|name| name.is_some())
    }

    /// Namespace of the operator.
    pub(crate) fn namespace(&self) -> &str {
        self.operator_namespace.as_deref().unwrap_or(CHART)
    }

    fn release(&self) -> &str {
        self.release.as_deref().unwrap_or(CHART)
    }

    /// Makes a client of the Kubernetes API from flags, the environment or the service account of a Pod.
    pub(crate) async fn connect(&self) -> Result<Client, String> {
        let connection = Connection {
            kubeconfig: self.kubeconfig.clone(),
            context: self.context.clone(),
        };
        connect(&connection)
            .await
            .map_err(|error| with_sources(&error))
    }

    /// Prefix of the names of the chart's objects, as its template `name` makes it.
    pub(crate) fn name(&self) -> String {
        let release = self.release();
        let cut = |max: usize| release.chars().take(max).collect::<String>();
        if release.contains(CHART) {
            cut(40).trim_end_matches('-').into()
        } else {
            format!("{}-{CHART}", cut(23).trim_end_matches('-'))
        }
    }
}

/// Variable of the first container of a Deployment; none if it is empty.
pub(crate) fn variable<'a>(deployment: &'a Value, name: &str) -> Option<&'a str> {
    let container = &deployment["spec"]["template"]["spec"]["containers"][0];
    let variables = container["env"].as_array()?;
    let found = variables.iter().find(|entry| entry["name"] == name)?;
    found["value"].as_str().filter(|value| !value.is_empty())
}
