//! Flags for public URLs, which must be the same for controller and gateway.

use shared::urls::{Scheme, UrlForm, Urls};

#[derive(Debug, Clone, clap::Args)]
pub(super) struct UrlArgs {
    /// URL at which clients reach the gateway; URLs of sandboxes derive from it. Must be the same
    /// for controller and gateway.
    #[arg(long, env = "BASE_URL", default_value = "http://localhost:5000")]
    base_url: BaseUrl,
    /// Form of the URLs of sandboxes: nested, flat, path or loopback. Must be the same for
    /// controller and gateway.
    #[arg(long, env = "URL_FORM", default_value = "nested")]
    url_form: UrlForm,
}

/// Scheme and host of public URLs.
#[derive(Debug, Clone)]
struct BaseUrl {
    scheme: Scheme,
    base: String,
}

impl From<UrlArgs> for Urls {
    fn from(args: UrlArgs) -> Self {
        Self {
            scheme: args.base_url.scheme,
            base: args.base_url.base,
            form: args.url_form,
        }
    }
}

impl std::str::FromStr for BaseUrl {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (scheme, rest) = text.split_once("://").ok_or("has no scheme")?;
        let scheme = match scheme {
            "http" => Scheme::Http,
            "https" => Scheme::Https,
            _ => return Err(format!("{scheme:?} is neither http nor https")),
        };
        let base = rest.trim_end_matches('/');
        if base.is_empty() || base.contains('/') {
            return Err("must be a scheme and a host without a path".into());
        }
        Ok(Self {
            scheme,
            base: base.to_owned(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base_url_must_be_scheme_and_host() {
        let url: BaseUrl = "https://rt.example.com:8443/".parse().unwrap();
        assert_eq!(
            (url.scheme, url.base.as_str()),
            (Scheme::Https, "rt.example.com:8443")
        );
        for text in ["rt.example.com", "ftp://a", "http://", "http://a/b"] {
            assert!(text.parse::<BaseUrl>().is_err(), "{text}");
        }
    }
}
