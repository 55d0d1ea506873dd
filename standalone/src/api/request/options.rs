//! Query parameters. An unknown one is ignored, as on a real server; one that does not parse is an error.

use std::{collections::HashMap, time::Duration};

use axum::extract::Query;
use http::Uri;

use crate::api::{error::ApiError, node::LogQuery, selector::Selector, table::Include};

/// The options of all verbs together; each reads what concerns it.
#[derive(Clone, Debug)]
pub(crate) struct Options {
    pub(crate) watch: bool,
    pub(crate) selector: Selector,
    pub(crate) resource_version: Option<String>,
    pub(crate) bookmarks: bool,
    pub(crate) send_initial_events: bool,
    pub(crate) timeout: Option<Duration>,
    /// Most items in one page of a list; 0 is no limit.
    pub(crate) limit: usize,
    /// Where the next page of a list begins, as an earlier page said.
    pub(crate) proceed: Option<String>,
    pub(crate) dry_run: bool,
    pub(crate) field_manager: Option<String>,
    pub(crate) field_validation: FieldValidation,
    pub(crate) grace: Option<u64>,
    pub(crate) orphan: bool,
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

impl Options {
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
            proceed: query.text("continue").map(str::to_owned),
            dry_run: dry_run(&query)?,
            field_manager: query.text("fieldManager").map(str::to_owned),
            field_validation: field_validation(&query)?,
            grace: query.number("gracePeriodSeconds")?,
            orphan: query.text("propagationPolicy") == Some("Orphan"),
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
    Ok(LogQuery {
        container: query.text("container").map(str::to_owned),
        previous: query.flag("previous"),
        tail: query.number("tailLines")?,
        limit_bytes: query.number("limitBytes")?,
        since_seconds: query.number("sinceSeconds")?,
        timestamps: query.flag("timestamps"),
    })
}
