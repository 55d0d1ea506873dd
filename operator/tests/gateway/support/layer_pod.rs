//! Control port of a Pod that proves its address and delivers the changed files of a snapshot.

use std::net::IpAddr;
use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use crds::contract::control::{ControlMessage, Grant};
use crds::contract::identity::{IdentityKey, NONCE_HEADER, PROOF_HEADER};
use crds::contract::token::Verifier;
use crds::contract::{CONTROL_PORT, endpoint};
use http::{HeaderMap, StatusCode};
use parking_lot::Mutex;
use tokio::net::TcpListener;

use super::gateway_fixture::GatewayFixture;

/// Uid of the Pod.
pub(crate) const POD_UID: &str = "pod-uid";

pub(crate) struct LayerPod {
    ip: IpAddr,
    identity: IdentityKey,
    verifier: Verifier,
    layer: Vec<u8>,
    /// Id and key of the requests.
    asked: Mutex<Vec<(String, String)>>,
}

impl LayerPod {
    /// Answers at `ip` for a sandbox.
    pub(crate) async fn start(
        fixture: &GatewayFixture,
        sandbox: &str,
        ip: &str,
        layer: &[u8],
    ) -> Arc<Self> {
        let uid = fixture.stored(sandbox).metadata.uid.unwrap();
        let keys = fixture.keys.of(None);
        let pod = Arc::new(Self {
            ip: ip.parse().unwrap(),
            identity: keys.identity_key(&uid),
            verifier: Verifier::new(&keys.signer().public_key()).unwrap(),
            layer: layer.to_vec(),
            asked: Mutex::default(),
        });
        let listener = TcpListener::bind((ip, CONTROL_PORT)).await.unwrap();
        let router = Router::new()
            .route(endpoint::IDENTITY, get(identity))
            .route(endpoint::LAYER, get(layer_of))
            .with_state(pod.clone());
        tokio::spawn(async { axum::serve(listener, router).await.unwrap() });
        pod
    }

    pub(crate) fn asked(&self) -> Vec<(String, String)> {
        self.asked.lock().clone()
    }
}

async fn identity(State(pod): State<Arc<LayerPod>>, headers: HeaderMap) -> Response {
    let nonce = headers[NONCE_HEADER].to_str().unwrap();
    let proof = pod.identity.prove(pod.ip, nonce, b"");
    ([(PROOF_HEADER, proof)], "").into_response()
}

async fn layer_of(State(pod): State<Arc<LayerPod>>, headers: HeaderMap) -> Response {
    let token = headers["authorization"].to_str().unwrap();
    let token = token.strip_prefix("Bearer ").unwrap();
    let now = jiff::Timestamp::now().as_second();
    let grant = ControlMessage::verify(token, &pod.verifier, POD_UID, now).unwrap();
    let Grant::Layer(request) = grant else {
        panic!("another grant");
    };
    pod.asked.lock().push((request.id, request.key));
    if pod.layer.is_empty() {
        let body = r#"{"detail": "the volume has no such snapshot"}"#;
        return (StatusCode::NOT_FOUND, body).into_response();
    }
    ([("x-sandbox-architecture", "amd64")], pod.layer.clone()).into_response()
}
