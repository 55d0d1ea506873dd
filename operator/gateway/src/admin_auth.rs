//! Administrator login: one password, proven by a challenge and response, then a token.
//!
//! Nothing is stored. Challenges and tokens are signed with a key derived from the root key, so
//! that every replica accepts them, and a new password invalidates all tokens.

mod login_queue;
mod token;

use std::net::IpAddr;
use std::num::NonZeroU32;
use std::sync::Arc;

use data_encoding::{HEXLOWER, HEXLOWER_PERMISSIVE};
use http::StatusCode;
use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;
use ring::digest::{self, SHA256_OUTPUT_LEN};
use ring::rand::{SecureRandom as _, SystemRandom};
use ring::{hmac, pbkdf2};
use schemars::JsonSchema;
use secrecy::{ExposeSecret as _, SecretString};
use serde::Serialize;

use login_queue::LoginQueue;
use shared::recent_map::RecentMap;

/// Iterations of PBKDF2. A login costs the server some ten milliseconds of one core.
const PBKDF2_ITERATIONS: NonZeroU32 = NonZeroU32::new(100_000).expect("the constant is not zero");
/// Validity of a challenge (`docs/specs/runtime-api.md`, section 1.11).
const CHALLENGE_TTL: SignedDuration = SignedDuration::from_mins(5);

/// Maximum number of remembered challenges: about as many logins as can be computed while one is
/// valid. Another replica does not know them and would accept the same proof once more.
const MAX_USED_CHALLENGES: usize = 65_536;

#[derive(Debug)]
pub(crate) struct AdminAuth {
    password: SecretString,
    challenges: hmac::Key,
    tokens: hmac::Key,
    salt: String,
    /// Used challenges, each valid for one attempt, with their expiry.
    used_challenges: Mutex<RecentMap<String, Timestamp, MAX_USED_CHALLENGES>>,
    login_queue: LoginQueue,
}

// Challenge of a login; a doc comment would be part of the document.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct AdminChallenge {
    pub(crate) challenge: String,
    /// Hexadecimal digits.
    salt: String,
    /// Iterations of PBKDF2.
    iterations: u32,
}

#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub(crate) enum AdminError {
    #[error("admin access is disabled: the gateway has no ADMIN_PASSWORD")]
    Disabled,
    #[error("the challenge is unknown, expired or used")]
    Challenge,
    #[error("wrong password")]
    Password,
    #[error("missing, wrong or expired token: log in as admin")]
    Token,
    #[error("too many logins at the same time; try again")]
    Busy,
    #[error("cannot read random bytes from the operating system")]
    Random,
}

impl AdminError {
    /// Returns the status code, and the error category: a fixed label for logs and metrics.
    pub(crate) fn kind(&self) -> (StatusCode, &'static str) {
        match self {
            Self::Disabled => (StatusCode::FORBIDDEN, "admin-disabled"),
            Self::Challenge => (StatusCode::BAD_REQUEST, "admin-challenge"),
            Self::Password => (StatusCode::UNAUTHORIZED, "admin-password"),
            Self::Token => (StatusCode::UNAUTHORIZED, "admin-token"),
            Self::Busy => (StatusCode::SERVICE_UNAVAILABLE, "admin-busy"),
            Self::Random => (StatusCode::INTERNAL_SERVER_ERROR, "admin-random"),
        }
    }
}

impl AdminAuth {
    /// Creates the checker of this password; `root` is the subkey for administration.
    pub(crate) fn new(password: SecretString, root: &hmac::Key) -> Self {
        let subkey = |purpose: &str| {
            let tag = hmac::sign(root, purpose.as_bytes());
            hmac::Key::new(hmac::HMAC_SHA256, tag.as_ref())
        };
        let of_password = digest::digest(&digest::SHA256, password.expose_secret().as_bytes());
        let salt = hmac::sign(root, b"salt");
        Self {
            challenges: subkey("challenge"),
            tokens: subkey(&format!("token/{}", HEXLOWER.encode(of_password.as_ref()))),
            salt: HEXLOWER.encode(&salt.as_ref()[..16]),
            password,
            used_challenges: Mutex::default(),
            login_queue: LoginQueue::default(),
        }
    }

    pub(crate) fn challenge(&self, now: Timestamp) -> Result<AdminChallenge, AdminError> {
        let mut nonce = [0; 16];
        let filled = SystemRandom::new().fill(&mut nonce);
        filled.map_err(|_| AdminError::Random)?;
        let until = now.as_second() + CHALLENGE_TTL.as_secs();
        let text = format!("{}.{until}", HEXLOWER.encode(&nonce));
        let tag = hmac::sign(&self.challenges, text.as_bytes());
        Ok(AdminChallenge {
            challenge: format!("{text}.{}", HEXLOWER.encode(tag.as_ref())),
            salt: self.salt.clone(),
            iterations: PBKDF2_ITERATIONS.get(),
        })
    }

    /// Issues a token for a valid proof: the hexadecimal PBKDF2-HMAC-SHA256 of the password, salted
    /// with the texts of salt and challenge. `peer` is the address of the client.
    pub(crate) async fn login(
        self: &Arc<Self>,
        challenge: String,
        hash: &str,
        peer: IpAddr,
        now: Timestamp,
    ) -> Result<String, AdminError> {
        let until = self
            .challenge_expiry(&challenge)
            .filter(|until| *until > now);
        let until = until.ok_or(AdminError::Challenge)?;
        let hash = HEXLOWER_PERMISSIVE.decode(hash.as_bytes()).ok();
        let hash = hash.filter(|hash| hash.len() == SHA256_OUTPUT_LEN);
        let hash = hash.ok_or(AdminError::Password)?;
        let permit = self
            .login_queue
            .acquire(peer)
            .await
            .ok_or(AdminError::Busy)?;
        // Recorded after the permit, so that entries cannot come faster than logins are computed.
        if !self.use_challenge(&challenge, until, now) {
            return Err(AdminError::Challenge);
        }
        let admin = self.clone();
        let proven = tokio::task::spawn_blocking(move || {
            // Recorded here, so that a client that disconnects is recorded too.
            let proven = admin.is_correct_proof(&challenge, &hash);
            permit.finish(proven);
            proven
        })
        .await;
        if !matches!(proven, Ok(true)) {
            return Err(AdminError::Password);
        }
        Ok(token::issue(&self.tokens, now))
    }

    /// Checks signature and expiry of a token.
    pub(crate) fn check(&self, token: &str, now: Timestamp) -> Result<(), AdminError> {
        token::is_valid(&self.tokens, token, now)
            .then_some(())
            .ok_or(AdminError::Token)
    }

    /// Records the use of a challenge; false if it was used before.
    fn use_challenge(&self, challenge: &str, until: Timestamp, now: Timestamp) -> bool {
        let mut used = self.used_challenges.lock();
        if used.get(challenge).is_some() {
            return false;
        }
        // Two evictions per insertion, so that expired ones become fewer.
        used.evict_oldest_if(|until| *until <= now);
        used.evict_oldest_if(|until| *until <= now);
        used.insert(challenge.to_owned(), until);
        true
    }

    /// Returns the expiry of a challenge with a valid signature.
    fn challenge_expiry(&self, challenge: &str) -> Option<Timestamp> {
        let (text, tag) = challenge.rsplit_once('.')?;
        let tag = HEXLOWER_PERMISSIVE.decode(tag.as_bytes()).ok()?;
        hmac::verify(&self.challenges, text.as_bytes(), &tag).ok()?;
        let (_, until) = text.rsplit_once('.')?;
        Timestamp::from_second(until.parse().ok()?).ok()
    }

    fn is_correct_proof(&self, challenge: &str, hash: &[u8]) -> bool {
        let salt = format!("{}{challenge}", self.salt);
        let password = self.password.expose_secret().as_bytes();
        let algorithm = pbkdf2::PBKDF2_HMAC_SHA256;
        pbkdf2::verify(
            algorithm,
            PBKDF2_ITERATIONS,
            salt.as_bytes(),
            password,
            hash,
        )
        .is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PEER: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

    fn admin(password: &str) -> Arc<AdminAuth> {
        let root = hmac::Key::new(hmac::HMAC_SHA256, &[5; 32]);
        Arc::new(AdminAuth::new(password.to_owned().into(), &root))
    }

    fn now() -> Timestamp {
        Timestamp::from_second(1_000_000).unwrap()
    }

    /// Logs in with a new challenge.
    async fn login(admin: &Arc<AdminAuth>, from: IpAddr) -> Result<String, AdminError> {
        let challenge = admin.challenge(now()).unwrap();
        let hash = proof("pass", &challenge);
        admin.login(challenge.challenge, &hash, from, now()).await
    }

    /// Computes a proof as clients do (`docs/specs/runtime-api.md`, section 1.11).
    fn proof(password: &str, challenge: &AdminChallenge) -> String {
        let salt = format!("{}{}", challenge.salt, challenge.challenge);
        let mut out = [0; 32];
        pbkdf2::derive(
            pbkdf2::PBKDF2_HMAC_SHA256,
            NonZeroU32::new(challenge.iterations).unwrap(),
            salt.as_bytes(),
            password.as_bytes(),
            &mut out,
        );
        HEXLOWER.encode(&out)
    }

    #[tokio::test]
    async fn login_issues_token_valid_for_a_day_on_every_replica() {
        let (one, other) = (admin("pass"), admin("pass"));
        let now = now();
        let challenge = one.challenge(now).unwrap();
        let hash = proof("pass", &challenge);
        let token = other
            .login(challenge.challenge, &hash, PEER, now)
            .await
            .unwrap();
        let day = SignedDuration::from_hours(24);
        assert_eq!(one.check(&token, now), Ok(()));
        assert_eq!(one.check(&token, now + day), Err(AdminError::Token));
        assert_eq!(admin("new").check(&token, now), Err(AdminError::Token));
    }

    #[tokio::test]
    async fn challenge_is_rejected_when_used_expired_or_forged() {
        let admin = admin("pass");
        let now = now();
        let challenge = admin.challenge(now).unwrap();
        let hash = proof("pass", &challenge);
        let login = |text: &str, at| {
            let (admin, text, hash) = (admin.clone(), text.to_owned(), hash.clone());
            async move { admin.login(text, &hash, PEER, at).await.err() }
        };
        let text = &challenge.challenge;
        let later = now + SignedDuration::from_mins(5);
        assert_eq!(login(text, later).await, Some(AdminError::Challenge));
        assert_eq!(login(text, now).await, None);
        assert_eq!(login(text, now).await, Some(AdminError::Challenge));
        let forged = text.replacen('.', ".9", 1);
        for odd in ["", "a.b.c", &forged] {
            assert_eq!(login(odd, now).await, Some(AdminError::Challenge), "{odd}");
        }
        let next = admin.challenge(now).unwrap().challenge;
        assert_eq!(login(&next, now).await, Some(AdminError::Password));
    }

    #[tokio::test]
    async fn malformed_login_is_not_recorded_and_blocks_none() {
        let admin = admin("pass");
        let now = now();
        let challenge = admin.challenge(now).unwrap().challenge;
        let refused = admin.login(challenge.clone(), "no hash", PEER, now).await;
        assert_eq!(refused, Err(AdminError::Password));
        let used = admin.used_challenges.lock().get(&challenge).copied();
        assert_eq!(used, None, "a flood cannot evict used challenges");
        let token = login(&admin, PEER).await.unwrap();
        assert_eq!(admin.check(&token, now), Ok(()));
    }

    #[tokio::test(start_paused = true)]
    async fn challenge_stays_usable_when_login_queue_is_full() {
        let admin = admin("pass");
        let now = now();
        let challenge = admin.challenge(now).unwrap();
        let hash = proof("pass", &challenge);
        let login = || admin.login(challenge.challenge.clone(), &hash, PEER, now);
        // Two from one address hold both permits.
        let first = admin.login_queue.acquire(PEER).await;
        let second = admin.login_queue.acquire(PEER).await;
        assert_eq!(login().await, Err(AdminError::Busy));
        drop((first, second));
        assert!(login().await.is_ok());
    }
}
