//! Tests of tenants.

use super::*;

/// Tenants of a Secret whose only key is `secret`; `fields` follow in its record.
fn loaded(fields: &str) -> Tenants {
    let tenants = Tenants::pending();
    load(&tenants, fields);
    tenants
}

fn load(tenants: &Tenants, fields: &str) {
    let json = format!(r#"[{{"name":"a","sha256":"{HASH}"{fields}}}]"#);
    tenants.replace(json.as_bytes()).unwrap();
}

fn authenticate(tenants: &Tenants, key: &str) -> Result<Arc<Tenant>, TenantError> {
    let found = tenants.authenticate(Some(key), Timestamp::UNIX_EPOCH);
    found.map(|key| key.tenant)
}

/// SHA-256 of `secret`.
const HASH: &str = "2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b";

#[test]
fn key_is_authenticated_by_its_hash() {
    let tenants = Tenants::pending();
    let early = authenticate(&tenants, "secret");
    assert!(matches!(early, Err(TenantError::NotLoaded)));
    let json = format!(r#"[{{"name":"a","sha256":"{HASH}","maxSandboxes":3}},{{"name":1}}]"#);
    tenants.replace(json.as_bytes()).unwrap();
    let key = tenants.authenticate(Some("secret"), Timestamp::UNIX_EPOCH);
    let key = key.unwrap();
    assert_eq!((&*key.tenant.name, &*key.id), ("a", &HASH[..8]));
    assert_eq!(key.tenant.limits.sandboxes, Some(3));
    let rate = Some(DEFAULT_CALLS_PER_SECOND);
    assert_eq!(key.tenant.calls_per_second, rate);
    for wrong in [None, Some(""), Some("Secret"), Some(HASH)] {
        let refused = tenants.authenticate(wrong, Timestamp::UNIX_EPOCH);
        assert!(matches!(refused, Err(TenantError::Unknown)));
    }
}

#[test]
fn key_is_rejected_from_its_expiry_on() {
    let tenants = loaded(r#","expiresAt":"2026-01-01T00:00:00Z""#);
    let expiry: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
    let at = |time| tenants.authenticate(Some("secret"), time);
    assert!(at(expiry - jiff::SignedDuration::from_secs(1)).is_ok());
    assert!(matches!(at(expiry), Err(TenantError::Expired)));
    assert!(tenants.named("a").is_some(), "limits of its sandboxes stay");
}

#[tokio::test(start_paused = true)]
async fn keys_of_the_secret_are_rejected_when_unconfirmed_for_too_long() {
    let tenants = Tenants::fixed([("default", "own")]);
    load(&tenants, "");
    assert_eq!(tenants.all().len(), 2, "fixed keys are kept");
    tenants.confirm();
    tokio::time::advance(MAX_UNCONFIRMED / 2).await;
    assert!(authenticate(&tenants, "secret").is_ok() && authenticate(&tenants, "own").is_ok());
    tokio::time::advance(MAX_UNCONFIRMED / 2).await;
    let stale = authenticate(&tenants, "secret");
    assert!(matches!(stale, Err(TenantError::Unconfirmed)));
    assert!(authenticate(&tenants, "own").is_ok());
    tenants.confirm();
    assert!(authenticate(&tenants, "secret").is_ok());
}

#[test]
fn malformed_document_keeps_loaded_keys() {
    let tenants = loaded("");
    assert!(tenants.replace(b"{}").is_err());
    assert!(authenticate(&tenants, "secret").is_ok());
    tenants.clear();
    assert!(authenticate(&tenants, "secret").is_err());
}

#[test]
fn keys_of_one_name_share_the_tightest_limits() {
    let other = "0".repeat(64);
    let json = format!(
        r#"[{{"name":"a","sha256":"{HASH}","maxSandboxes":3,"maxCpu":"1500m","maxMemory":"1Gi"}},
            {{"name":"a","sha256":"{other}","maxSandboxes":2,"urlForm":"path","maxWaiting":7,
            "maxTotalSandboxes":9}}]"#
    );
    let tenants = Tenants::pending();
    tenants.replace(json.as_bytes()).unwrap();
    let tenant = authenticate(&tenants, "secret").unwrap();
    let limits = Limits {
        sandboxes: Some(2),
        cpu: Some(1500),
        memory: Some(1 << 30),
        waiting: 7,
        total_sandboxes: 9,
    };
    assert_eq!(tenant.limits, limits);
    assert_eq!(tenant.url_form, Some(UrlForm::Path));
    assert_eq!(tenants.named("a"), Some(tenant));
}

#[tokio::test(start_paused = true)]
async fn calls_beyond_burst_are_delayed_then_rejected() {
    let tenants = Tenants::pending();
    let load = |rate: u32| {
        load(&tenants, &format!(r#","callsPerSecond":{rate}"#));
        authenticate(&tenants, "secret").unwrap()
    };
    let tenant = load(10);
    let reserve = || tenants.reserve_call(&tenant).ok();
    let waits: Vec<_> = (0..100).map_while(|_| reserve()).collect();
    let free = waits.iter().filter(|wait| wait.is_zero()).count();
    assert_eq!(free, 21);
    // Two seconds are free, five can be waited for.
    assert_eq!(waits.len(), 71);
    assert_eq!(waits.last(), Some(&MAX_WAIT));
    load(10);
    tokio::time::advance(Duration::from_secs(1)).await;
    assert_eq!(reserve(), Some(Duration::from_millis(4100)));
    tokio::time::advance(Duration::from_mins(1)).await;
    assert_eq!(reserve(), Some(Duration::ZERO));
    let unlimited = load(0);
    assert!((0..100).all(|_| matches!(tenants.reserve_call(&unlimited), Ok(Duration::ZERO))));
}
