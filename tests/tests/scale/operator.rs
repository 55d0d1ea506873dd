//! The controller under test, in this process: supervisors answer at once, because nothing listens behind
//! the addresses of Pods that only the API knows. All else is real, and the API server knows it by name.

use kube::Client;
use tests::test_cluster::{ScriptedSupervisors, run_controller};
use tokio_util::sync::CancellationToken;

/// Runs as this user until the token is cancelled.
pub(crate) fn start(
    user: &'static str,
    shutdown: CancellationToken,
) -> tokio::task::JoinHandle<()> {
    let supervisors = ScriptedSupervisors::of_ready_commands(false);
    tokio::spawn(async move { run_controller(client(user).await, supervisors, shutdown).await })
}

/// A client of the cluster that goes by a name.
pub(crate) async fn client(name: &str) -> Client {
    let mut config = kube::Config::infer().await.unwrap();
    config.auth_info.impersonate = Some(name.to_owned());
    config.auth_info.impersonate_groups = Some(vec!["system:masters".to_owned()]);
    Client::try_from(config).unwrap()
}
