//! Installation of the chart that a kubeconfig leads to.

mod gateway;
mod port_forward;

use std::path::PathBuf;

use kube::Client;
use serde_json::Value;
use shared::kubernetes::client::{Connection, connect};

use crate::kubernetes::chain;

pub(crate) use self::gateway::Gateway;

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Options with a kubeconfig")]
pub(crate) struct Installation {
    /// Kubeconfig; by default that of `KUBECONFIG`, or that of a Pod
    #[arg(long, global = true, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig
    #[arg(long, global = true, value_name = "NAME")]
    context: Option<String>,
    /// Namespace of the operator
    #[arg(
        long,
        global = true,
        value_name = "NAMESPACE",
        default_value = "sandbox-operator"
    )]
    pub(crate) operator_namespace: String,
    /// Name of the Helm release
    #[arg(
        long,
        global = true,
        value_name = "NAME",
        default_value = "sandbox-operator"
    )]
    release: String,
}

impl Installation {
    /// Returns whether the command line names a cluster.
    pub(crate) fn is_chosen(&self) -> bool {
        self.kubeconfig.is_some() || self.context.is_some()
    }

    /// Makes a client of the Kubernetes API from flags, the environment or the service account of a Pod.
    pub(crate) async fn connect(&self) -> Result<Client, String> {
        let connection = Connection {
            kubeconfig: self.kubeconfig.clone(),
            context: self.context.clone(),
        };
        connect(&connection).await.map_err(|error| chain(&error))
    }

    /// Prefix of the names of the chart's objects, as its template `name` makes it.
    pub(crate) fn name(&self) -> String {
        const CHART: &str = "sandbox-operator";
        let cut = |max: usize| self.release.chars().take(max).collect::<String>();
        if self.release.contains(CHART) {
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
