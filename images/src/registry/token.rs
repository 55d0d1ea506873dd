//! Authorization at registries: HTTP Basic, or tokens as the distribution specification of Docker
//! describes them ("Token Authentication").

use std::collections::BTreeMap;
use std::time::Duration;

use http::header::WWW_AUTHENTICATE;
use http_auth::{ChallengeRef, parse_challenges};
use parking_lot::Mutex;
use reqwest::{Client, RequestBuilder, Response, Url};
use secrecy::{ExposeSecret as _, SecretString};
use serde::Deserialize;
use tokio::time::Instant;

use super::response::{bounded, causes, failure};
use super::{Origin, RegistryError};
use crate::credentials::Login;

/// Bytes of the answer of a token server.
const MAX_ANSWER: u64 = 256 << 10;
/// Tokens that are kept.
const MAX_TOKENS: usize = 256;
/// Life of a token that does not state it, by the specification, and how long before its end it is
/// no longer used.
const DEFAULT_LIFE: Duration = Duration::from_mins(1);
const MARGIN: Duration = Duration::from_secs(10);

/// Header of an authorized request.
#[derive(Debug, Clone)]
pub(super) enum Authorization {
    Basic(Login),
    Bearer(SecretString),
}

/// Tokens by host, repository, actions and user. A token is never used for another of them.
#[derive(Debug, Default)]
pub(super) struct Tokens(Mutex<BTreeMap<Key, Token>>);

type Key = (String, String, &'static str, Option<(String, String)>);

#[derive(Debug, Clone)]
struct Token {
    authorization: Authorization,
    until: Instant,
}

#[derive(Deserialize)]
struct Answer {
    /// Both names occur, also together.
    token: Option<String>,
    access_token: Option<String>,
    expires_in: Option<u64>,
}

impl Authorization {
    pub(super) fn apply(&self, request: RequestBuilder) -> RequestBuilder {
        match self {
            Self::Basic(login) => {
                request.basic_auth(&login.user, Some(login.password.expose_secret()))
            }
            Self::Bearer(token) => request.bearer_auth(token.expose_secret()),
        }
    }
}

fn key(origin: &Origin<'_>) -> Key {
    let login = origin.login.map(|login| {
        let password = crate::Digest::of(login.password.expose_secret().as_bytes());
        (login.user.clone(), password.hex())
    });
    (
        origin.host.clone(),
        origin.repository.to_owned(),
        origin.actions,
        login,
    )
}

impl Tokens {
    pub(super) fn known(&self, origin: &Origin<'_>) -> Option<Authorization> {
        let tokens = self.0.lock();
        let token = tokens.get(&key(origin))?;
        (token.until > Instant::now()).then(|| token.authorization.clone())
    }

    /// Answers the challenge of a response; `None` if the registry offers no way, or only one that
    /// needs credentials.
    pub(super) async fn authorize(
        &self,
        client: &Client,
        origin: &Origin<'_>,
        response: &Response,
        is_insecure: bool,
        what: &str,
    ) -> Result<Option<Authorization>, RegistryError> {
        let headers = response.headers().get_all(WWW_AUTHENTICATE).iter();
        let headers: Vec<&str> = headers.filter_map(|value| value.to_str().ok()).collect();
        let challenges: Vec<_> = headers
            .iter()
            .flat_map(|text| parse_challenges(text))
            .collect();
        let challenges = || challenges.iter().flatten();
        let of_scheme =
            |name: &str| challenges().find(|challenge| challenge.scheme.eq_ignore_ascii_case(name));
        if let Some(challenge) = of_scheme("bearer") {
            let token = request(client, origin, challenge, is_insecure, what).await?;
            self.keep(origin, token.clone());
            return Ok(Some(token.authorization));
        }
        let login = origin.login.filter(|_| of_scheme("basic").is_some());
        let Some(login) = login else {
            return Ok(None);
        };
        let token = Token {
            authorization: Authorization::Basic(login.clone()),
            until: Instant::now() + DEFAULT_LIFE,
        };
        self.keep(origin, token.clone());
        Ok(Some(token.authorization))
    }

    fn keep(&self, origin: &Origin<'_>, token: Token) {
        let mut tokens = self.0.lock();
        let now = Instant::now();
        tokens.retain(|_, token| token.until > now);
        if tokens.len() == MAX_TOKENS {
            tokens.clear();
        }
        tokens.insert(key(origin), token);
    }
}

/// Asks the token server of a challenge. It gets the credentials only over HTTPS, or if the
/// registry itself may be reached over HTTP.
async fn request(
    client: &Client,
    origin: &Origin<'_>,
    challenge: &ChallengeRef<'_>,
    is_insecure: bool,
    what: &str,
) -> Result<Token, RegistryError> {
    let refused = |reason: &str| RegistryError::Refused {
        what: what.to_owned(),
        reason: reason.to_owned(),
    };
    let parameter = |name: &str| {
        let mut parameters = challenge.params.iter();
        let found = parameters.find(|(own, _)| own.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.to_unescaped())
    };
    let realm = parameter("realm").and_then(|realm| realm.parse::<Url>().ok());
    let mut url = realm.ok_or_else(|| refused("challenge of the registry has no realm"))?;
    if url.scheme() != "https" && !(url.scheme() == "http" && is_insecure) {
        return Err(refused(
            "token server of the registry is not reached over HTTPS",
        ));
    }
    // The registry's own scope could name other repositories.
    let scope = format!("repository:{}:{}", origin.repository, origin.actions);
    if let Some(service) = parameter("service") {
        url.query_pairs_mut().append_pair("service", &service);
    }
    url.query_pairs_mut().append_pair("scope", &scope);
    let mut request = client.get(url);
    if let Some(login) = origin.login {
        request = Authorization::Basic(login.clone()).apply(request);
    }
    let response = request
        .send()
        .await
        .map_err(|error| RegistryError::Unreachable {
            what: what.to_owned(),
            cause: format!("token server: {}", causes(&error)),
        })?;
    if !response.status().is_success() {
        return Err(failure(response, what).await);
    }
    let body = bounded(response, MAX_ANSWER, what).await?;
    let answer = serde_json::from_slice::<Answer>(&body).ok();
    let answer = answer.ok_or_else(|| refused("answer of the token server is not valid"))?;
    let token = answer.token.or(answer.access_token);
    let token = token.ok_or_else(|| refused("answer of the token server has no token"))?;
    let life = answer.expires_in.map_or(DEFAULT_LIFE, Duration::from_secs);
    // A token is kept for an hour at most.
    let life = life.clamp(DEFAULT_LIFE, Duration::from_hours(1));
    Ok(Token {
        authorization: Authorization::Bearer(token.into()),
        until: Instant::now() + life - MARGIN,
    })
}
