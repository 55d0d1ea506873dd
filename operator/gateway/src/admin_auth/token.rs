//! Tokens of the administrator: JSON Web Tokens with the fixed algorithm HS256, so that a token
//! cannot choose its verification.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jiff::{SignedDuration, Timestamp};
use ring::hmac;
use serde::{Deserialize, Serialize};

/// Validity of a token (`docs/specs/runtime-api.md`, section 1.11).
const TOKEN_TTL: SignedDuration = SignedDuration::from_hours(24);
/// The only accepted header.
const HEADER: &str = r#"{"alg":"HS256","typ":"JWT"}"#;
const MAX_TOKEN_BYTES: usize = 1024;

#[derive(Debug, Serialize, Deserialize)]
struct Claims {
    sub: String,
    iat: i64,
    exp: i64,
}

pub(super) fn issue(key: &hmac::Key, now: Timestamp) -> String {
    let iat = now.as_second();
    let exp = iat + TOKEN_TTL.as_secs();
    let claims = format!(r#"{{"sub":"admin","iat":{iat},"exp":{exp}}}"#);
    let text = format!(
        "{}.{}",
        URL_SAFE_NO_PAD.encode(HEADER),
        URL_SAFE_NO_PAD.encode(claims)
    );
    let tag = hmac::sign(key, text.as_bytes());
    format!("{text}.{}", URL_SAFE_NO_PAD.encode(tag))
}

pub(super) fn is_valid(key: &hmac::Key, token: &str, now: Timestamp) -> bool {
    token.len() <= MAX_TOKEN_BYTES
        && read(key, token).is_some_and(|claims| {
            let now = now.as_second();
            claims.sub == "admin" && claims.iat <= now && now < claims.exp
        })
}

fn read(key: &hmac::Key, token: &str) -> Option<Claims> {
    let (text, tag) = token.rsplit_once('.')?;
    let tag = URL_SAFE_NO_PAD.decode(tag).ok()?;
    hmac::verify(key, text.as_bytes(), &tag).ok()?;
    let (header, claims) = text.split_once('.')?;
    if header != URL_SAFE_NO_PAD.encode(HEADER) {
        return None;
    }
    serde_json::from_slice(&URL_SAFE_NO_PAD.decode(claims).ok()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn token_is_rejected_when_forged_or_not_yet_valid() {
        let key = hmac::Key::new(hmac::HMAC_SHA256, &[1; 32]);
        let other = hmac::Key::new(hmac::HMAC_SHA256, &[2; 32]);
        let now = Timestamp::from_second(1_000_000).unwrap();
        let token = issue(&key, now);
        assert!(is_valid(&key, &token, now));
        assert!(!is_valid(&other, &token, now));
        assert!(!is_valid(&key, &token, now - SignedDuration::from_secs(1)));
        let none = URL_SAFE_NO_PAD.encode(r#"{"alg":"none"}"#);
        let claims = token.split('.').nth(1).unwrap();
        for forged in ["", ".", "..", &format!("{none}.{claims}."), &token[1..]] {
            assert!(!is_valid(&key, forged, now), "{forged}");
        }
    }
}
