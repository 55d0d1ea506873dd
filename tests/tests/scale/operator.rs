//! The controller under test, in this process: supervisors answer at once, because nothing listens behind
//! the addresses of Pods that only the API knows. All else is real, and the API server knows it by name.

use std::sync::Arc;

use kube::Client;
use operator::clock::Clock;
use operator::controller::{self, ControllerConfig, PeerClients};
use operator::index::Index;
use operator::keys::Keys;
use operator::traffic::NoGateways;
use operator::urls::{Scheme, UrlForm, Urls};
use tests::test_cluster::ScriptedSupervisors;
use tokio_util::sync::CancellationToken;

/// User of the controller in the audit log.
pub(crate) const NAME: &str = "the-controller";

/// Runs until the token is cancelled.
pub(crate) fn start(shutdown: CancellationToken) -> tokio::task::JoinHandle<()> {
    let supervisors = ScriptedSupervisors::default();
    supervisors.ready_by_default();
    let keys = Arc::new(Keys::derive(&[7; 32]).unwrap());
    let urls = Urls {
        scheme: Scheme::Https,
        base: "sandboxes.example.com".into(),
        form: UrlForm::Nested,
    };
    let peers = PeerClients {
        supervisors: Arc::new(supervisors),
        gateways: Arc::new(NoGateways),
    };
    tokio::spawn(async move {
        let ended = controller::run(
            client(NAME).await,
            ControllerConfig::new(urls),
            keys.clone(),
            Arc::new(Index::new(keys)),
            peers,
            Clock::wall(),
            shutdown,
        );
        ended.await.unwrap();
    })
}

/// A client of the cluster that goes by a name.
pub(crate) async fn client(name: &str) -> Client {
    let mut config = kube::Config::infer().await.unwrap();
    config.auth_info.impersonate = Some(name.to_owned());
    config.auth_info.impersonate_groups = Some(vec!["system:masters".to_owned()]);
    Client::try_from(config).unwrap()
}
