//! Query parameters. Unknown ones are ignored, as on a real server; malformed ones are rejected.

use std::time::Duration;

use axum::extract::Query;
use http::Uri;
use jiff::{SignedDuration, Timestamp};

use crate::api::{
    error::ApiError,
    kubelet::{ExecCommand, LogQuery},
    selector::Selector,
    table::Include,
};

/// Options of all verbs; each verb reads its own.
#[derive(Clone, Debug)]
pub(crate) struct RequestOptions {
    pub(crate) watch: bool,
    pub(crate) selector: Selector,
    pub(crate) resource_version: Option<String>,
    pub(crate) bookmarks: bool,
    pub(crate) send_initial_events: bool,
    pub(crate) timeout: Option<Duration>,
    /// Page size of a list; 0 means unlimited.
    pub(crate) limit: usize,
    /// Continue token of the previous page.
    pub(crate) continue_token: Option<String>,
    pub(crate) dry_run: bool,
    pub(crate) field_manager: Option<String>,
    pub(crate) field_validation: FieldValidation,
    pub(crate) grace: Option<u64>,
    pub(crate) propagation_policy: Option<String>,
    /// Overrides conflicts of server-side apply.
    pub(crate) force: bool,
    pub(crate) include: Include,
    pub(crate) container: Option<String>,
    pub(crate) log: LogQuery,
    pub(crate) exec: ExecCommand,
    /// Ports of a port-forward.
    pub(crate) ports: Vec<u16>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FieldValidation {
    Ignore,
    Warn,
    Strict,
}

/// In the order of the URL; a name may occur several times.
struct Parameters(Vec<(String, String)>);

impl Parameters {
    fn text(&self, name: &str) -> Option<&str> {
        self.all(name).next().filter(|text| !text.is_empty())
    }

    fn all(&self, name: &str) -> impl Iterator<Item = &str> {
        let named = self.0.iter().filter(move |(own, _)| own == name);
        named.map(|(_, text)| text.as_str())
    }

    fn owned(&self, name: &str) -> Option<String> {
        self.text(name).map(str::to_owned)
    }

    fn flag(&self, name: &str) -> bool {
        // As on a real server.
        let is_true = |text: &str| text != "0" && !text.eq_ignore_ascii_case("false");
        self.all(name).next().is_some_and(is_true)
    }

    fn number<N: std::str::FromStr>(&self, name: &str) -> Result<Option<N>, ApiError> {
        self.text(name).map(|text| number(name, text)).transpose()
    }

    /// One of the known values of a parameter.
    fn choice<T: Copy>(&self, name: &str, default: T, known: &[(&str, T)]) -> Result<T, ApiError> {
        let Some(text) = self.text(name) else {
            return Ok(default);
        };
        let found = known.iter().find(|(value, _)| *value == text);
        let invalid = || ApiError::BadRequest(format!("invalid {name}: {text:?}"));
        found.map(|(_, choice)| *choice).ok_or_else(invalid)
    }
}

fn number<N: std::str::FromStr>(name: &str, text: &str) -> Result<N, ApiError> {
    let invalid = |_| ApiError::BadRequest(format!("invalid value of {name}: {text:?}"));
    text.parse().map_err(invalid)
}

impl RequestOptions {
    pub(crate) fn parse(uri: &Uri) -> Result<Self, ApiError> {
        let Query(pairs) =
            Query::try_from_uri(uri).map_err(|error| ApiError::BadRequest(error.to_string()))?;
        let query = Parameters(pairs);
        Ok(Self {
            watch: query.flag("watch"),
            selector: Selector::parse(query.text("labelSelector"), query.text("fieldSelector"))?,
            resource_version: query.owned("resourceVersion"),
            bookmarks: query.flag("allowWatchBookmarks"),
            send_initial_events: query.flag("sendInitialEvents"),
            timeout: query.number("timeoutSeconds")?.map(Duration::from_secs),
            limit: query.number("limit")?.unwrap_or(0),
            continue_token: query.owned("continue"),
            dry_run: query.choice("dryRun", false, &[("All", true)])?,
            field_manager: query.owned("fieldManager"),
            field_validation: query.choice(
                "fieldValidation",
                FieldValidation::Warn,
                &[
                    ("Warn", FieldValidation::Warn),
                    ("Ignore", FieldValidation::Ignore),
                    ("Strict", FieldValidation::Strict),
                ],
            )?,
            grace: query.number("gracePeriodSeconds")?,
            propagation_policy: query.owned("propagationPolicy"),
            force: query.flag("force"),
            include: query.choice(
                "includeObject",
                Include::Metadata,
                &[
                    ("Metadata", Include::Metadata),
                    ("None", Include::None),
                    ("Object", Include::Object),
                ],
            )?,
            container: query.owned("container"),
            log: log(&query)?,
            exec: exec(&query),
            ports: ports(&query)?,
        })
    }
}

fn log(query: &Parameters) -> Result<LogQuery, ApiError> {
    let seconds = query.number::<i64>("sinceSeconds")?;
    let ago = |seconds| Timestamp::now().checked_sub(SignedDuration::from_secs(seconds));
    let since = match seconds {
        Some(seconds) => Some(ago(seconds).unwrap_or(Timestamp::MIN)),
        None => query.number("sinceTime")?,
    };
    Ok(LogQuery {
        previous: query.flag("previous"),
        follow: query.flag("follow"),
        tail: query.number("tailLines")?,
        limit_bytes: query.number("limitBytes")?,
        since,
        timestamps: query.flag("timestamps"),
    })
}

fn exec(query: &Parameters) -> ExecCommand {
    ExecCommand {
        command: query.all("command").map(str::to_owned).collect(),
        stdin: query.flag("stdin"),
        stdout: query.flag("stdout"),
        stderr: query.flag("stderr"),
        tty: query.flag("tty"),
    }
}

fn ports(query: &Parameters) -> Result<Vec<u16>, ApiError> {
    let ports = query.all("ports").flat_map(|list| list.split(','));
    ports.map(|port| number("ports", port)).collect()
}
