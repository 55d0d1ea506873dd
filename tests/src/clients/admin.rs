//! The tools that administer warm runtime configs (`docs/specs/runtime-api.md`, sections 1.1 and 1.11): a login by PBKDF2, and
//! then a token.

use std::num::NonZeroU32;
use std::time::Duration;

use data_encoding::HEXLOWER;
use http::Method;
use hyper::body::Bytes;
use ring::pbkdf2::{PBKDF2_HMAC_SHA256, derive};
use serde_json::{Value, json};

use super::exception::{index, text};
use super::{ClientException, HttpClient, POLL, Reply};

const CALL_TIMEOUT: Duration = Duration::from_secs(15);
/// Retried statuses, and the number of attempts.
const RETRYABLE_CODES: [u16; 4] = [429, 502, 503, 504];
const MAX_ATTEMPTS: usize = 4;

/// One tool. It has no API key.
#[derive(Debug)]
pub struct Admin {
    pub wire: HttpClient,
    api_url: String,
}

impl Admin {
    pub fn new(api_url: &str) -> Self {
        Self {
            wire: HttpClient::unpooled(&[]),
            api_url: api_url.into(),
        }
    }

    /// Asks for a challenge and answers it.
    pub async fn log_in(&mut self, password: &str) -> Result<(), ClientException> {
        let challenge = self.call(Method::GET, "challenge", None).await?;
        let answer = solve(&challenge, password)?;
        self.answer(&answer).await
    }

    /// Sends the answer to a challenge and keeps the token.
    pub async fn answer(&mut self, answer: &Value) -> Result<(), ClientException> {
        let told = self.call(Method::POST, "login", Some(answer)).await?;
        let bearer = format!("Bearer {}", text(&told, "token")?);
        self.wire.headers = vec![("Authorization".into(), bearer)];
        Ok(())
    }

    /// `PUT /api/admin/warm-runtime-configs/{name}`: the config as it is stored.
    pub async fn put(&self, name: &str, config: &Value) -> Result<Value, ClientException> {
        let path = format!("warm-runtime-configs/{}", encoded(name));
        let stored = self.call(Method::PUT, &path, Some(config)).await?;
        let same = text(&stored, "name")? == name && text(&stored, "source")? == "db";
        same.then_some(())
            .ok_or_else(|| ClientException::Assertion(format!("another config: {stored}")))?;
        Ok(stored)
    }

    /// `DELETE` of the same.
    pub async fn delete(&self, name: &str) -> Result<(), ClientException> {
        let path = format!("warm-runtime-configs/{}", encoded(name));
        let told = self.call(Method::DELETE, &path, None).await?;
        text(&told, "message").map(drop)
    }

    /// The entry of the key called `default`.
    pub async fn default_key(&self) -> Result<Value, ClientException> {
        let keys = self.call(Method::GET, "api-keys", None).await?;
        let keys = keys.as_array().cloned().unwrap_or_default();
        let default = keys.into_iter().find(|key| key["name"] == "default");
        let key = default.ok_or_else(|| ClientException::Value("no default key".into()))?;
        for field in ["id", "key_value", "max_runtimes", "remaining_credits"] {
            index(&key, field)?;
        }
        Ok(key)
    }

    /// One call below `/api/admin`; what may pass is tried again.
    pub async fn call(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<Value, ClientException> {
        let mut reply = self.once(&method, path, body).await?;
        for _ in 1..MAX_ATTEMPTS {
            if !RETRYABLE_CODES.contains(&reply.status) {
                break;
            }
            tokio::time::sleep(POLL).await;
            reply = self.once(&method, path, body).await?;
        }
        reply.success()
    }

    async fn once(
        &self,
        method: &Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<Reply, ClientException> {
        let url = format!("{}/api/admin/{path}", self.api_url);
        let body = body.map_or_else(Bytes::new, |body| Bytes::from(body.to_string()));
        self.wire
            .send(method.clone(), &url, body, CALL_TIMEOUT)
            .await
    }
}

/// The answer to a challenge: the salt is the text of salt and challenge, one after the other.
pub fn solve(challenge: &Value, password: &str) -> Result<Value, ClientException> {
    let rounds = index(challenge, "iterations")?.as_u64().unwrap_or_default();
    let rounds = u32::try_from(rounds).ok().and_then(NonZeroU32::new);
    let rounds = rounds.ok_or_else(|| ClientException::Value("iterations".into()))?;
    let question = text(challenge, "challenge")?;
    let salt = text(challenge, "salt")? + &question;
    let mut hash = [0; 32];
    derive(
        PBKDF2_HMAC_SHA256,
        rounds,
        salt.as_bytes(),
        password.as_bytes(),
        &mut hash,
    );
    Ok(json!({"challenge": question, "hash": HEXLOWER.encode(&hash)}))
}

/// A name as it stands in a path.
fn encoded(name: &str) -> String {
    let one = |byte: u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
            char::from(byte).to_string()
        }
        byte => format!("%{byte:02X}"),
    };
    name.bytes().map(one).collect()
}
