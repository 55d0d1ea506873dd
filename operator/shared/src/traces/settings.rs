//! Settings of the export, from the standard environment variables of OpenTelemetry.

use std::collections::HashMap;
use std::env;

use http::{HeaderName, HeaderValue, Uri};
use opentelemetry::KeyValue;
use opentelemetry_sdk::trace::Sampler;
use percent_encoding::percent_decode_str;

const DISABLED: &str = "OTEL_SDK_DISABLED";
const ENDPOINT: &str = "OTEL_EXPORTER_OTLP_ENDPOINT";
const TRACES_ENDPOINT: &str = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT";
const HEADERS: &str = "OTEL_EXPORTER_OTLP_HEADERS";
const TRACES_HEADERS: &str = "OTEL_EXPORTER_OTLP_TRACES_HEADERS";
const PROTOCOL: &str = "OTEL_EXPORTER_OTLP_PROTOCOL";
const TRACES_PROTOCOL: &str = "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL";
const COMPRESSION: &str = "OTEL_EXPORTER_OTLP_COMPRESSION";
const TRACES_COMPRESSION: &str = "OTEL_EXPORTER_OTLP_TRACES_COMPRESSION";
const SAMPLER: &str = "OTEL_TRACES_SAMPLER";
const SAMPLER_ARG: &str = "OTEL_TRACES_SAMPLER_ARG";
const SERVICE_NAME: &str = "OTEL_SERVICE_NAME";
const RESOURCE_ATTRIBUTES: &str = "OTEL_RESOURCE_ATTRIBUTES";

/// Path of traces below a base endpoint.
const TRACES_PATH: &str = "/v1/traces";

/// Collector, sampler and description of the process.
#[derive(Clone, derive_more::Debug)]
pub struct TraceSettings {
    /// URL to which batches are posted.
    pub(super) endpoint: String,
    #[debug(skip)]
    pub(super) headers: HashMap<String, String>,
    pub(super) sampler: Sampler,
    pub(super) resource: Vec<KeyValue>,
}

/// A variable has an invalid value. The text does not have the value, which may be secret.
#[derive(Debug, thiserror::Error)]
#[error("{name} {problem}")]
pub struct TraceSettingsError {
    name: &'static str,
    problem: String,
}

impl TraceSettings {
    /// Reads the environment of the process. `None` without an endpoint: no spans are made.
    pub fn from_environment() -> Result<Option<Self>, TraceSettingsError> {
        Self::read(|name| Some(env::var_os(name)?.to_string_lossy().into_owned()))
    }

    /// Reads variables. Empty ones are absent, as the specification of OpenTelemetry demands.
    pub fn read(
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<Option<Self>, TraceSettingsError> {
        let variable = |name| variable(name).filter(|value| !value.trim().is_empty());
        let is_off = variable(DISABLED).is_some_and(|value| value.eq_ignore_ascii_case("true"));
        let Some(endpoint) = endpoint(&variable)?.filter(|_| !is_off) else {
            return Ok(None);
        };
        for (name, only) in [
            (PROTOCOL, "http/protobuf"),
            (TRACES_PROTOCOL, "http/protobuf"),
            (COMPRESSION, "none"),
            (TRACES_COMPRESSION, "none"),
        ] {
            if variable(name).is_some_and(|value| value.trim() != only) {
                return Err(invalid(name, format!("must be {only} or absent")));
            }
        }
        Ok(Some(Self {
            endpoint,
            headers: headers(&variable)?,
            sampler: sampler(&variable)?,
            resource: resource(&variable)?,
        }))
    }
}

fn invalid(name: &'static str, problem: impl Into<String>) -> TraceSettingsError {
    let problem = problem.into();
    TraceSettingsError { name, problem }
}

/// The first of the variables that is set, with its name.
fn first(
    names: [&'static str; 2],
    variable: &impl Fn(&'static str) -> Option<String>,
) -> Option<(&'static str, String)> {
    let mut set = names.into_iter();
    set.find_map(|name| variable(name).map(|value| (name, value)))
}

fn endpoint(
    variable: &impl Fn(&'static str) -> Option<String>,
) -> Result<Option<String>, TraceSettingsError> {
    let Some((name, value)) = first([TRACES_ENDPOINT, ENDPOINT], variable) else {
        return Ok(None);
    };
    let value = value.trim();
    let is_url = value.parse::<Uri>().is_ok_and(|uri| {
        let has_scheme = matches!(uri.scheme_str(), Some("http" | "https"));
        has_scheme && uri.authority().is_some_and(|of| !of.as_str().contains('@'))
    });
    // The path of traces is appended to the base.
    if !is_url || name == ENDPOINT && value.contains('?') {
        let problem = "must be a URL such as http://collector:4318, without user and password";
        return Err(invalid(name, problem));
    }
    Ok(Some(if name == ENDPOINT {
        format!("{}{TRACES_PATH}", value.trim_end_matches('/'))
    } else {
        value.to_owned()
    }))
}

fn headers(
    variable: &impl Fn(&'static str) -> Option<String>,
) -> Result<HashMap<String, String>, TraceSettingsError> {
    let Some((name, value)) = first([TRACES_HEADERS, HEADERS], variable) else {
        return Ok(HashMap::new());
    };
    let pairs = pairs(name, &value)?;
    let is_header = |(key, value): &(String, String)| {
        HeaderName::try_from(key).is_ok() && HeaderValue::try_from(value).is_ok()
    };
    if !pairs.iter().all(is_header) {
        return Err(invalid(name, "must have valid names and values of headers"));
    }
    Ok(pairs.into_iter().collect())
}

fn resource(
    variable: &impl Fn(&'static str) -> Option<String>,
) -> Result<Vec<KeyValue>, TraceSettingsError> {
    let attributes = variable(RESOURCE_ATTRIBUTES).unwrap_or_default();
    let mut attributes = pairs(RESOURCE_ATTRIBUTES, &attributes)?;
    attributes.extend(variable(SERVICE_NAME).map(|name| ("service.name".to_owned(), name)));
    let attributes = attributes.into_iter();
    Ok(attributes
        .map(|(key, value)| KeyValue::new(key, value))
        .collect())
}

/// Reads `key=value,key=value` with percent-encoded values.
fn pairs(name: &'static str, text: &str) -> Result<Vec<(String, String)>, TraceSettingsError> {
    let pair = |text: &str| {
        let (key, value) = text.split_once('=')?;
        let value = percent_decode_str(value.trim()).decode_utf8().ok()?;
        let key = key.trim();
        (!key.is_empty()).then(|| (key.to_owned(), value.into_owned()))
    };
    let texts = text.split(',').filter(|text| !text.trim().is_empty());
    let pairs: Option<Vec<_>> = texts.map(pair).collect();
    let problem = "must have the form key=value,key=value with percent-encoded values";
    pairs.ok_or_else(|| invalid(name, problem))
}

fn sampler(
    variable: &impl Fn(&'static str) -> Option<String>,
) -> Result<Sampler, TraceSettingsError> {
    let ratio = || {
        let text = variable(SAMPLER_ARG).unwrap_or_else(|| "1".to_owned());
        let ratio = text.trim().parse().ok();
        let ratio = ratio.filter(|ratio| (0.0..=1.0).contains(ratio));
        ratio.ok_or_else(|| invalid(SAMPLER_ARG, "must be a number from 0 to 1"))
    };
    let (name, is_parent_based) = match variable(SAMPLER) {
        None => ("always_on".to_owned(), true),
        Some(name) => match name.trim().strip_prefix("parentbased_") {
            Some(root) => (root.to_owned(), true),
            None => (name.trim().to_owned(), false),
        },
    };
    let root = match &*name {
        "always_on" => Sampler::AlwaysOn,
        "always_off" => Sampler::AlwaysOff,
        "traceidratio" => Sampler::TraceIdRatioBased(ratio()?),
        _ => {
            let problem = "must be always_on, always_off or traceidratio, each with or without the \
                           prefix parentbased_";
            return Err(invalid(SAMPLER, problem));
        }
    };
    Ok(if is_parent_based {
        Sampler::ParentBased(Box::new(root))
    } else {
        root
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(variables: &[(&str, &str)]) -> Result<Option<TraceSettings>, TraceSettingsError> {
        let variables: HashMap<_, _> = variables.iter().copied().collect();
        TraceSettings::read(|name| variables.get(name).map(|value| (*value).to_owned()))
    }

    fn read_with(more: &[(&str, &str)]) -> Result<Option<TraceSettings>, TraceSettingsError> {
        read(&[&[(ENDPOINT, "http://c:4318/")], more].concat())
    }

    #[test]
    fn traces_are_off_without_endpoint() {
        for variables in [
            &[][..],
            &[(ENDPOINT, " "), (HEADERS, "broken")],
            &[(ENDPOINT, "http://c"), (DISABLED, "TRUE")],
        ] {
            assert!(read(variables).unwrap().is_none(), "{variables:?}");
        }
    }

    #[test]
    fn endpoint_of_traces_is_taken_as_it_is() {
        let endpoint = |variables: &[_]| read(variables).unwrap().unwrap().endpoint;
        let base = (ENDPOINT, "https://c:4318/otlp/");
        assert_eq!(endpoint(&[base]), "https://c:4318/otlp/v1/traces");
        let own = (TRACES_ENDPOINT, "http://d/x?y=1");
        assert_eq!(endpoint(&[base, own]), "http://d/x?y=1");
    }

    #[test]
    fn values_are_decoded() {
        let settings = read_with(&[
            (HEADERS, "authorization=Basic%20YQ==, x-scope = a"),
            (RESOURCE_ATTRIBUTES, "service.name=old,a=b%2Cc"),
            (SERVICE_NAME, "new"),
        ]);
        let settings = settings.unwrap().unwrap();
        let header = |name: &str| settings.headers[name].as_str();
        assert_eq!(header("authorization"), "Basic YQ==");
        assert_eq!(header("x-scope"), "a");
        let names = settings.resource.iter().map(|of| of.value.to_string());
        assert_eq!(names.collect::<Vec<_>>(), ["old", "b,c", "new"]);
        assert!(!format!("{settings:?}").contains("YQ=="));
    }

    #[test]
    fn samplers_have_their_standard_names() {
        for (name, argument, expected) in [
            ("", "", "ParentBased(AlwaysOn)"),
            ("always_off", "", "AlwaysOff"),
            ("traceidratio", "0.25", "TraceIdRatioBased(0.25)"),
            (
                "parentbased_traceidratio",
                "",
                "ParentBased(TraceIdRatioBased(1.0))",
            ),
        ] {
            let settings = read_with(&[(SAMPLER, name), (SAMPLER_ARG, argument)]);
            let sampler = settings.unwrap().unwrap().sampler;
            assert_eq!(format!("{sampler:?}"), expected);
        }
    }

    #[test]
    fn wrong_values_are_rejected_without_showing_them() {
        for (name, value) in [
            (TRACES_ENDPOINT, "secret:4318"),
            (TRACES_ENDPOINT, "ftp://secret"),
            (TRACES_ENDPOINT, "http://secret@c"),
            (HEADERS, "secret"),
            (HEADERS, "a b=secret"),
            (HEADERS, "a=secret%0A"),
            (PROTOCOL, "grpc-secret"),
            (TRACES_COMPRESSION, "gzip-secret"),
            (SAMPLER, "jaeger_remote-secret"),
            (RESOURCE_ATTRIBUTES, "=secret"),
        ] {
            let error = read_with(&[(name, value)]).unwrap_err().to_string();
            assert!(error.starts_with(&format!("{name} must ")), "{error}");
            assert!(!error.contains("secret"), "{error}");
        }
        for ratio in ["2", "-0.1", "NaN", "half"] {
            let variables = [(SAMPLER, "traceidratio"), (SAMPLER_ARG, ratio)];
            let error = read_with(&variables).unwrap_err().to_string();
            assert!(error.starts_with(SAMPLER_ARG), "{error}");
        }
    }
}
