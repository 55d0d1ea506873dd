//! Several controllers at once, of which one leads. Each has a link to the API server of its own
//! that can break, and a name that the server's log of writes shows.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use futures::StreamExt as _;
use http::{HeaderValue, Request, Response, header};
use http_body_util::BodyExt as _;
use kube::Client;
use kube::client::Body as ClientBody;
use operator::clock::Clock;
use operator::controller::{self, ControllerConfig, ControllerError, PeerClients};
use operator::diagnostics::Diagnostics;
use operator::index::Index;
use operator::keys::Keys;
use operator::kubernetes::leader::LeaseConfig;
use operator::traffic::NoGateways;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use crate::fault_injection::Write;
use tower::BoxError;

use super::{NAMESPACE, ScriptedSupervisors, TestCluster, urls};

/// Name of the lease in these tests.
const LEASE: &str = "controllers";

/// Longest virtual time that anything is waited for.
const WAIT_TIMEOUT: Duration = Duration::from_mins(10);

/// State of the link between a candidate and the API server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Link {
    Up,
    /// Packets are lost without an error. Pending ones arrive when the link is up again.
    Silent,
    /// Every request fails at once; open watches fall silent.
    Refused,
}

/// One controller of several.
#[derive(Debug)]
pub struct TestController {
    pub identity: String,
    pub vitals: Arc<Diagnostics>,
    link: watch::Sender<Link>,
    shutdown: CancellationToken,
    task: JoinHandle<Result<(), ControllerError>>,
}

impl TestCluster {
    /// Starts a controller that acts only while it holds the lease.
    pub fn candidate(&self, identity: &str) -> TestController {
        self.candidate_of(LEASE, identity)
    }

    /// As [`TestCluster::candidate`], in the installation with this lease.
    pub fn candidate_of(&self, lease: &str, identity: &str) -> TestController {
        let link = watch::Sender::new(Link::Up);
        let (shutdown, vitals) = (CancellationToken::new(), Arc::<Diagnostics>::default());
        let mut config = ControllerConfig::new(urls());
        config.vitals = vitals.clone();
        config.leader = Some(LeaseConfig {
            namespace: NAMESPACE.into(),
            name: lease.into(),
            identity: identity.into(),
        });
        let run = controller::run(
            linked(&self.api.client(), identity, &link),
            config,
            self.keys.clone(),
            Arc::new(Index::new(self.keys.clone())),
            self.peers(),
            self.api.clock(),
            shutdown.clone(),
        );
        TestController {
            identity: identity.into(),
            vitals,
            link,
            shutdown,
            task: tokio::spawn(Box::pin(run)),
        }
    }

    /// Waits until this candidate has written anything but lease and events.
    pub async fn wait_for_write(&self, who: &str) {
        let limit = Instant::now() + WAIT_TIMEOUT;
        while !self.writes_so_far().iter().any(|(by, _)| by == who) {
            assert!(Instant::now() < limit, "{who} does not act");
            sleep(Duration::from_millis(10)).await;
        }
    }

    /// Writes of candidates, without those of the lease and of events, with who made them.
    pub fn writes_so_far(&self) -> Vec<(String, Write)> {
        let writes = self.writes_of_candidates().into_iter();
        writes
            .filter(|(_, w)| !matches!(w.request.resource.as_str(), "leases" | "events"))
            .collect()
    }

    /// Fails if any candidate wrote anything after another one had taken the lease. Returns how
    /// often the lease changed hands.
    pub fn assert_one_leader_at_a_time(&self) -> usize {
        let (mut leader, mut terms) = (String::new(), 0);
        for (who, write) in self.writes_of_candidates() {
            if write.request.resource == "leases" {
                if write.changed && leader != who {
                    leader = who;
                    terms += 1;
                }
            } else {
                assert_eq!(who, leader, "wrote without leading: {write:?}");
            }
        }
        terms
    }

    fn writes_of_candidates(&self) -> Vec<(String, Write)> {
        let writes = self.faults().writes().into_iter();
        let named = writes.map(|w| (w.request.user_agent.clone(), w));
        named
            .filter(|(who, _)| who.starts_with("candidate"))
            .collect()
    }
}

/// Runs a controller by itself, on the real clock, until the token is cancelled.
pub async fn run_controller(
    client: Client,
    supervisors: ScriptedSupervisors,
    shutdown: CancellationToken,
) {
    let keys = Arc::new(Keys::derive(&[7; 32]).expect("32 bytes"));
    let peers = PeerClients {
        supervisors: Arc::new(supervisors),
        gateways: Arc::new(NoGateways),
    };
    let ended = controller::run(
        client,
        ControllerConfig::new(urls()),
        keys.clone(),
        Arc::new(Index::new(keys)),
        peers,
        Clock::wall(),
        shutdown,
    );
    ended.await.expect("an orderly end");
}

impl TestController {
    /// Changes the link to the API server.
    pub fn set_link(&self, link: Link) {
        self.link.send_replace(link);
    }

    /// Ends it as a crash does.
    pub async fn crash(self) {
        self.task.abort();
        // Ends with the abort, which is what was asked for.
        let _ = self.task.await;
    }

    /// Ends it as SIGTERM does.
    pub async fn shut_down(self) -> Result<(), ControllerError> {
        self.shutdown.cancel();
        self.task.await.expect("no panic")
    }

    /// Waits until it ends by itself.
    pub async fn wait_ended(self) -> Result<(), ControllerError> {
        self.task.await.expect("no panic")
    }

    /// Returns whether the process has ended by itself.
    pub fn has_ended(&self) -> bool {
        self.task.is_finished()
    }

    /// Waits until it says that it leads.
    pub async fn wait_leading(&self) {
        let limit = Instant::now() + WAIT_TIMEOUT;
        while !self.has_metric("sandbox_operator_leader 1") {
            assert!(Instant::now() < limit, "{} does not lead", self.identity);
            sleep(Duration::from_millis(10)).await;
        }
    }

    /// Returns whether its metrics have this line.
    pub fn has_metric(&self, line: &str) -> bool {
        let metrics = self.vitals.metrics.encode().expect("metrics");
        metrics.lines().any(|l| l == line)
    }
}

/// The client behind a link, under a name.
fn linked(client: &Client, identity: &str, link: &watch::Sender<Link>) -> Client {
    let (client, link) = (client.clone(), link.clone());
    let agent = HeaderValue::from_str(identity).expect("a plain name");
    let namespace = client.default_namespace().to_owned();
    let service = tower::service_fn(move |mut request: Request<ClientBody>| {
        request
            .headers_mut()
            .insert(header::USER_AGENT, agent.clone());
        exchange(client.clone(), request, link.subscribe())
    });
    Client::new(service, namespace)
}

async fn exchange(
    client: Client,
    request: Request<ClientBody>,
    mut link: watch::Receiver<Link>,
) -> Result<Response<Body>, BoxError> {
    if *link.borrow() == Link::Refused {
        return Err("connection refused".into());
    }
    up(&mut link).await;
    let answer = client.send(request).await?;
    up(&mut link).await;
    Ok(answer.map(|body| {
        let pieces = body.into_data_stream().then(move |piece| {
            let mut link = link.clone();
            async move {
                up(&mut link).await;
                piece
            }
        });
        Body::from_stream(pieces)
    }))
}

async fn up(link: &mut watch::Receiver<Link>) {
    if link.wait_for(|link| *link == Link::Up).await.is_err() {
        std::future::pending::<()>().await;
    }
}
