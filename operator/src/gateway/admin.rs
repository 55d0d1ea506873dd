//! Who administers: one password, proven by the answer to a challenge, and then a token.
//!
//! Nothing is stored. Challenges and tokens are signed with a key that follows from the root key,
//! so every replica takes what another one gave out, and a new password ends all tokens.

mod token;
mod turns;
mod used;

use std::net::IpAddr;
use std::num::NonZeroU32;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;
use ring::rand::{SecureRandom as _, SystemRandom};
use ring::{digest, hmac, pbkdf2};
use secrecy::{ExposeSecret as _, SecretString};

use crate::tenants::book::hex;
use turns::Turns;
use used::Used;

/// Rounds of PBKDF2. Each login costs the server some ten milliseconds of one core.
const ITERATIONS: NonZeroU32 = NonZeroU32::new(100_000).expect("it is not zero");
/// How long a challenge can be answered (runtime API spec 1.11).
const CHALLENGE_LIFE: SignedDuration = SignedDuration::from_mins(5);

/// The administrator's access.
#[derive(Debug)]
pub struct Admin {
    password: SecretString,
    challenges: hmac::Key,
    tokens: hmac::Key,
    salt: String,
    used: Mutex<Used>,
    turns: Turns,
}

/// What a client proves its knowledge of the password with.
#[derive(Debug, Clone)]
pub struct Challenge {
    pub challenge: String,
    pub salt: String,
    pub iterations: u32,
}

/// Why somebody is not let in.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum AdminError {
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
    #[error("no randomness")]
    Random,
}

impl Admin {
    /// Access with this password; `root` is the subkey for administration.
    pub fn new(password: SecretString, root: &hmac::Key) -> Self {
        let subkey = |purpose: &str| {
            let tag = hmac::sign(root, purpose.as_bytes());
            hmac::Key::new(hmac::HMAC_SHA256, tag.as_ref())
        };
        let of_password = digest::digest(&digest::SHA256, password.expose_secret().as_bytes());
        let salt = hmac::sign(root, b"salt");
        Self {
            challenges: subkey("challenge"),
            tokens: subkey(&format!("token/{}", hex(of_password.as_ref()))),
            salt: hex(&salt.as_ref()[..16]),
            password,
            used: Mutex::default(),
            turns: Turns::default(),
        }
    }

    /// A new challenge.
    pub fn challenge(&self, now: Timestamp) -> Result<Challenge, AdminError> {
        let mut nonce = [0; 16];
        let filled = SystemRandom::new().fill(&mut nonce);
        filled.map_err(|_| AdminError::Random)?;
        let until = now.as_second() + CHALLENGE_LIFE.as_secs();
        let text = format!("{}.{until}", hex(&nonce));
        let tag = hmac::sign(&self.challenges, text.as_bytes());
        Ok(Challenge {
            challenge: format!("{text}.{}", hex(tag.as_ref())),
            salt: self.salt.clone(),
            iterations: ITERATIONS.get(),
        })
    }

    /// A token for whoever answers a challenge rightly: with the hexadecimal digits of
    /// PBKDF2-HMAC-SHA256 of the password, salted with the texts of salt and challenge. `peer` is where
    /// it comes from.
    pub async fn login(
        self: &Arc<Self>,
        challenge: String,
        hash: &str,
        peer: IpAddr,
        now: Timestamp,
    ) -> Result<String, AdminError> {
        let until = self.until(&challenge).filter(|until| *until > now);
        let until = until.ok_or(AdminError::Challenge)?;
        let hash = unhex(hash).ok_or(AdminError::Password)?;
        let turn = self.turns.take(peer).await.ok_or(AdminError::Busy)?;
        // Only now: what is remembered comes in no faster than it is computed.
        if !self.used.lock().insert(&challenge, until, now) {
            return Err(AdminError::Challenge);
        }
        let admin = self.clone();
        let proven = tokio::task::spawn_blocking(move || {
            // Its end is noted here, also of one whose client has left.
            let proven = admin.is_answer(&challenge, &hash);
            turn.end(proven);
            proven
        })
        .await;
        if !matches!(proven, Ok(true)) {
            return Err(AdminError::Password);
        }
        Ok(token::issue(&self.tokens, now))
    }

    /// Whether a token is one of ours and still valid.
    pub fn check(&self, token: &str, now: Timestamp) -> Result<(), AdminError> {
        token::is_valid(&self.tokens, token, now)
            .then_some(())
            .ok_or(AdminError::Token)
    }

    /// When a challenge of ours expires.
    fn until(&self, challenge: &str) -> Option<Timestamp> {
        let (text, tag) = challenge.rsplit_once('.')?;
        hmac::verify(&self.challenges, text.as_bytes(), &unhex(tag)?).ok()?;
        let (_, until) = text.rsplit_once('.')?;
        Timestamp::from_second(until.parse().ok()?).ok()
    }

    fn is_answer(&self, challenge: &str, hash: &[u8]) -> bool {
        let salt = format!("{}{challenge}", self.salt);
        let password = self.password.expose_secret().as_bytes();
        let algorithm = pbkdf2::PBKDF2_HMAC_SHA256;
        hash.len() == digest::SHA256_OUTPUT_LEN
            && pbkdf2::verify(algorithm, ITERATIONS, salt.as_bytes(), password, hash).is_ok()
    }
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    let digits = text.as_bytes();
    if digits.len() != 2 * digest::SHA256_OUTPUT_LEN {
        return None;
    }
    let digit = |c: u8| char::from(c).to_digit(16);
    let bytes = digits.chunks_exact(2);
    bytes
        .map(|pair| u8::try_from(digit(pair[0])? << 4 | digit(pair[1])?).ok())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const PEER: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

    fn admin(password: &str) -> Arc<Admin> {
        let root = hmac::Key::new(hmac::HMAC_SHA256, &[5; 32]);
        Arc::new(Admin::new(password.to_owned().into(), &root))
    }

    /// What clients compute (runtime API spec 1.11).
    fn answer(password: &str, challenge: &Challenge) -> String {
        let salt = format!("{}{}", challenge.salt, challenge.challenge);
        let mut out = [0; 32];
        pbkdf2::derive(
            pbkdf2::PBKDF2_HMAC_SHA256,
            NonZeroU32::new(challenge.iterations).unwrap(),
            salt.as_bytes(),
            password.as_bytes(),
            &mut out,
        );
        hex(&out)
    }

    #[tokio::test]
    async fn a_right_answer_gives_a_token_that_every_replica_takes_for_a_day() {
        let (one, other) = (admin("pass"), admin("pass"));
        let now = Timestamp::from_second(1_000_000).unwrap();
        let challenge = one.challenge(now).unwrap();
        let hash = answer("pass", &challenge);
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
    async fn challenges_are_used_once_expire_and_are_ours() {
        let admin = admin("pass");
        let now = Timestamp::from_second(1_000_000).unwrap();
        let challenge = admin.challenge(now).unwrap();
        let hash = answer("pass", &challenge);
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
    async fn malformed_answers_keep_nobody_out() {
        let admin = admin("pass");
        let now = Timestamp::from_second(1_000_000).unwrap();
        for _ in 0..70_000 {
            let challenge = admin.challenge(now).unwrap().challenge;
            let refused = admin.login(challenge, "no hash", PEER, now).await;
            assert_eq!(refused, Err(AdminError::Password));
        }
        let challenge = admin.challenge(now).unwrap();
        let hash = answer("pass", &challenge);
        let token = admin.login(challenge.challenge, &hash, PEER, now).await;
        assert_eq!(admin.check(&token.unwrap(), now), Ok(()));
    }

    #[tokio::test(start_paused = true)]
    async fn a_login_that_never_gets_its_turn_can_be_tried_again() {
        let admin = admin("pass");
        let now = Timestamp::from_second(1_000_000).unwrap();
        let challenge = admin.challenge(now).unwrap();
        let hash = answer("pass", &challenge);
        let login = || admin.login(challenge.challenge.clone(), &hash, PEER, now);
        // Two from one place: the second waits for what never comes.
        let first = admin.turns.take(PEER).await;
        let second = admin.turns.take(PEER).await;
        assert_eq!(login().await, Err(AdminError::Busy));
        drop((first, second));
        assert!(login().await.is_ok());
    }

    #[tokio::test]
    async fn wrong_answers_keep_nobody_out_who_comes_from_elsewhere() {
        let admin = admin("pass");
        let now = Timestamp::from_second(1_000_000).unwrap();
        let wrong = hex(&[7; 32]);
        let flood = (0..200).map(|_| {
            let challenge = admin.challenge(now).unwrap().challenge;
            admin.login(challenge, &wrong, PEER, now)
        });
        let flood = futures::future::join_all(flood);
        let good = async {
            let challenge = admin.challenge(now).unwrap();
            let hash = answer("pass", &challenge);
            let elsewhere = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1));
            let login = admin.login(challenge.challenge, &hash, elsewhere, now);
            login.await.is_ok()
        };
        // The flood is asked first, and is not over when the good one is.
        tokio::select! {
            biased;
            _ = flood => panic!("they were before it"),
            good = good => assert!(good),
        }
    }

    #[test]
    fn nothing_secret_is_printed() {
        assert!(!format!("{:?}", admin("hunter2")).contains("hunter2"));
    }
}
