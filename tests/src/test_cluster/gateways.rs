//! All gateways of a test, as the controller asks them.

use futures::future::BoxFuture;
use operator::gateway::Gateway;
use operator::index::Key;
use operator::traffic::{Gateways, GatewaysError, Traffic};
use parking_lot::Mutex;

#[derive(Debug, Default)]
pub(super) struct TestGateways(pub(super) Mutex<Vec<Gateway>>);

impl Gateways for TestGateways {
    fn traffic<'a>(
        &'a self,
        sandbox: &'a Key,
    ) -> BoxFuture<'a, Result<Option<Traffic>, GatewaysError>> {
        let gateways = self.0.lock().clone();
        Box::pin(async move {
            let mut all: Option<Traffic> = None;
            for gateway in gateways {
                let one = gateway.traffic(sandbox).await?;
                all = all.zip(one).map(|(a, b)| a.merge(b)).or(all).or(one);
            }
            Ok(all)
        })
    }
}
