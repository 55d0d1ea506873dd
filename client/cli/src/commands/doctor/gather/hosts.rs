//! Looks up the hosts of URLs, as this machine's resolver finds them.

use std::net::IpAddr;
use std::time::Duration;

use tokio::net::lookup_host;

use super::super::facts::{Facts, Host};
use crate::installation::variable;

const TIMEOUT: Duration = Duration::from_secs(5);

pub(super) async fn resolve(facts: &Facts) -> Vec<Host> {
    let gateway = facts.deployment("gateway").ok();
    let read = |name| gateway.and_then(|gateway| variable(gateway, name));
    let base = read("BASE_URL").unwrap_or_default();
    let mut hosts = Vec::new();
    for name in names(base, read("URL_FORM").unwrap_or_default()) {
        let lookup = async { lookup_host((name.as_str(), 443)).await.map(drop) };
        let found = tokio::time::timeout(TIMEOUT, lookup).await;
        let resolved = match found {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => Err(error.to_string()),
            Err(_) => Err(format!("no response within {} s", TIMEOUT.as_secs())),
        };
        hosts.push(Host { name, resolved });
    }
    hosts
}

/// Host of the API, and one of a sandbox; none for addresses.
fn names(base_url: &str, form: &str) -> Vec<String> {
    let Some(host) = base_url
        .parse::<http::Uri>()
        .ok()
        .and_then(|url| url.host().map(str::to_owned))
    else {
        return Vec::new();
    };
    if host.trim_matches(['[', ']']).parse::<IpAddr>().is_ok() {
        return Vec::new();
    }
    match form {
        "nested" => vec![host.clone(), format!("doctor.{host}")],
        "flat" => vec![host.clone(), format!("doctor-{host}")],
        _ => vec![host],
    }
}

#[cfg(test)]
mod tests {
    use super::names;

    #[test]
    fn hosts_follow_the_form_of_urls() {
        assert_eq!(names("https://a.test", "path"), ["a.test"]);
        let nested = names("https://a.test:8443/x", "nested");
        assert_eq!(nested, ["a.test", "doctor.a.test"]);
        assert_eq!(names("http://a.test", "flat"), ["a.test", "doctor-a.test"]);
        for url in ["http://10.0.0.1:5000", "http://[::1]", ""] {
            assert_eq!(names(url, "nested"), [""; 0], "{url}");
        }
    }
}
