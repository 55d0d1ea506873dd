//! Token server of a registry ("Token Authentication" of Docker's distribution): signs what users
//! with a password ask for, and answers others as registries do.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{SystemTime, UNIX_EPOCH};

use axum::extract::{Query, State};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use http::header::AUTHORIZATION;
use http::{HeaderMap, HeaderValue, StatusCode};
use parking_lot::Mutex;
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair};
use serde_json::{Value, json};
use tokio::sync::oneshot;

const ISSUER: &str = "issuer-of-tests";
const SERVICE: &str = "registry-of-tests";
/// Life of a token, in seconds.
const LIFE: u64 = 300;

/// The one user and the password.
pub const USER: &str = "puller";
pub const PASSWORD: &str = "correct-horse-battery";

/// Running server; ends with the value.
#[derive(Debug)]
pub(super) struct TokenServer {
    /// Part of the registry's configuration.
    pub(super) auth: Value,
    signer: Arc<Signer>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Signer {
    key: EcdsaKeyPair,
    /// Base64 of the certificate's DER, which the registry trusts.
    certificate: String,
    issued: Mutex<Vec<String>>,
}

impl TokenServer {
    /// Starts a server with its files in `directory`.
    pub(super) fn start(directory: &Path) -> Self {
        let signer = Arc::new(Signer::create(directory));
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        listener.set_nonblocking(true).expect("a socket");
        let router = Router::new().route("/token", get(answer));
        let router = router.with_state(Arc::clone(&signer));
        let (stop, stopped) = oneshot::channel::<()>();
        let serve = async move {
            let listener = tokio::net::TcpListener::from_std(listener).expect("a socket");
            tokio::select! {
                ended = axum::serve(listener, router) => ended.expect("a server"),
                _ = stopped => {}
            }
        };
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.enable_all().build().expect("a runtime");
        let auth = json!({"token": {
            "realm": format!("http://{address}/token"), "service": SERVICE, "issuer": ISSUER,
            "rootcertbundle": directory.join("certificate.pem"),
        }});
        Self {
            auth,
            signer,
            stop: Some(stop),
            thread: Some(thread::spawn(move || runtime.block_on(serve))),
        }
    }

    /// Tokens that were given out.
    pub(super) fn issued(&self) -> Vec<String> {
        self.signer.issued.lock().clone()
    }
}

impl Drop for TokenServer {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Signer {
    fn create(directory: &Path) -> Self {
        let path = |name: &str| directory.join(name);
        let (key, certificate) = (path("key.pem"), path("certificate.pem"));
        let output = Command::new("openssl")
            .args([
                "req",
                "-x509",
                "-newkey",
                "ec",
                "-pkeyopt",
                "ec_paramgen_curve:P-256",
            ])
            .args([
                "-nodes",
                "-days",
                "2",
                "-subj",
                "/CN=tokens-of-tests",
                "-keyout",
            ])
            .arg(&key)
            .arg("-out")
            .arg(&certificate)
            .output()
            .expect("openssl, of hack/install");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "openssl: {errors}");
        let key = STANDARD.decode(body_of(&key)).expect("a key");
        let (algorithm, random) = (&ECDSA_P256_SHA256_FIXED_SIGNING, SystemRandom::new());
        Self {
            key: EcdsaKeyPair::from_pkcs8(algorithm, &key, &random).expect("a key"),
            certificate: body_of(&certificate),
            issued: Mutex::default(),
        }
    }

    /// A token that allows `access`.
    fn token(&self, access: &Value) -> String {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let now = now.expect("a time after 1970").as_secs();
        let header = json!({"typ": "JWT", "alg": "ES256", "x5c": [self.certificate]});
        let claims = json!({
            "iss": ISSUER, "sub": USER, "aud": SERVICE, "exp": now + LIFE, "nbf": now - LIFE,
            "iat": now, "jti": "1", "access": access,
        });
        let parts = [header, claims].map(|part| URL_SAFE_NO_PAD.encode(part.to_string()));
        let signed = parts.join(".");
        let signature = self.key.sign(&SystemRandom::new(), signed.as_bytes());
        let signature = URL_SAFE_NO_PAD.encode(signature.expect("a signature"));
        let token = format!("{signed}.{signature}");
        self.issued.lock().push(token.clone());
        token
    }
}

/// Base64 in a PEM file with one entry.
fn body_of(path: &Path) -> String {
    let text = fs::read_to_string(path).expect("a PEM file");
    let lines = text.lines().filter(|line| !line.starts_with('-'));
    lines.collect()
}

/// A user gets what is asked for, and a request without a user a token for nothing.
async fn answer(
    State(signer): State<Arc<Signer>>,
    Query(query): Query<BTreeMap<String, String>>,
    headers: HeaderMap,
) -> Response {
    let login = headers.get(AUTHORIZATION).map(HeaderValue::as_bytes);
    let expected = format!("Basic {}", STANDARD.encode(format!("{USER}:{PASSWORD}")));
    let access = match login {
        None => json!([]),
        Some(login) if login == expected.as_bytes() => access(&query),
        Some(_) => {
            let error = json!({"code": "UNAUTHORIZED", "message": "incorrect user or password"});
            let body = Json(json!({"errors": [error]}));
            return (StatusCode::UNAUTHORIZED, body).into_response();
        }
    };
    Json(json!({"token": signer.token(&access), "expires_in": LIFE})).into_response()
}

/// The scope `repository:NAME:ACTION,…` of a request.
fn access(query: &BTreeMap<String, String>) -> Value {
    let scope = query.get("scope").map_or("", String::as_str);
    let mut parts = scope.rsplitn(2, ':');
    let (actions, resource) = (
        parts.next(),
        parts.next().and_then(|text| text.split_once(':')),
    );
    let (Some(actions), Some((kind, name))) = (actions, resource) else {
        return json!([]);
    };
    let actions: Vec<&str> = actions.split(',').collect();
    json!([{"type": kind, "name": name, "actions": actions}])
}
