//! Query parameters. Unknown ones are ignored, as on a real server; malformed ones are rejected.

use std::{collections::HashMap, time::Duration};

use axum::extract::Query;
use http::Uri;
use jiff::{SignedDuration, Timestamp};

use crate::api::{error::ApiError, pod_logs::LogQuery, selector::Selector, table::Include};

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
    pub(crate) log: LogQuery,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FieldValidation {
    Ignore,
    Warn,
    Strict,
}

struct Parameters(HashMap<String, String>);

impl Parameters {
    fn text(&self, name: &str) -> Option<&str> {
        self.0
            .get(name)
            .map(String::as_str)
            .filter(|text| !text.is_empty())
    }

    fn flag(&self, name: &str) -> bool {
        matches!(self.text(name), Some("true" | "1"))
    }

    fn number<N: std::str::FromStr>(&self, name: &str) -> Result<Option<N>, ApiError> {
        let parse = |text: &str| {
            text.parse()
                .map_err(|_| ApiError::BadRequest(format!("invalid value of {name}: {text:?}")))
        };
        self.text(name).map(parse).transpose()
    }
}

impl RequestOptions {
    pub(crate) fn parse(uri: &Uri) -> Result<Self, ApiError> {
        let Query(map) =
            Query::try_from_uri(uri).map_err(|error| ApiError::BadRequest(error.to_string()))?;
        let query = Parameters(map);
        Ok(Self {
            watch: query.flag("watch"),
            selector: Selector::parse(query.text("labelSelector"), query.text("fieldSelector"))?,
            resource_version: query.text("resourceVersion").map(str::to_owned),
            bookmarks: query.flag("allowWatchBookmarks"),
            send_initial_events: query.flag("sendInitialEvents"),
            timeout: query.number("timeoutSeconds")?.map(Duration::from_secs),
            limit: query.number("limit")?.unwrap_or(0),
            continue_token: query.text("continue").map(str::to_owned),
            dry_run: dry_run(&query)?,
            field_manager: query.text("fieldManager").map(str::to_owned),
            field_validation: field_validation(&query)?,
            grace: query.number("gracePeriodSeconds")?,
            propagation_policy: query.text("propagationPolicy").map(str::to_owned),
            force: query.flag("force"),
            include: include(&query)?,
            log: log(&query)?,
        })
    }
}

fn dry_run(query: &Parameters) -> Result<bool, ApiError> {
    match query.text("dryRun") {
        None => Ok(false),
        Some("All") => Ok(true),
        Some(other) => Err(ApiError::BadRequest(format!("invalid dryRun: {other:?}"))),
    }
}

fn field_validation(query: &Parameters) -> Result<FieldValidation, ApiError> {
    match query.text("fieldValidation") {
        None | Some("Warn") => Ok(FieldValidation::Warn),
        Some("Ignore") => Ok(FieldValidation::Ignore),
        Some("Strict") => Ok(FieldValidation::Strict),
        Some(other) => Err(ApiError::BadRequest(format!(
            "invalid fieldValidation: {other:?}"
        ))),
    }
}

fn include(query: &Parameters) -> Result<Include, ApiError> {
    match query.text("includeObject") {
        None | Some("Metadata") => Ok(Include::Metadata),
        Some("None") => Ok(Include::None),
        Some("Object") => Ok(Include::Object),
        Some(other) => Err(ApiError::BadRequest(format!(
            "invalid includeObject: {other:?}"
        ))),
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
        container: query.text("container").map(str::to_owned),
        previous: query.flag("previous"),
        follow: query.flag("follow"),
        tail: query.number("tailLines")?,
        limit_bytes: query.number("limitBytes")?,
        since,
        timestamps: query.flag("timestamps"),
    })
}
