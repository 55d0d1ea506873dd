//! Ids that are none, paths that lead nowhere, and slashes too many.

use super::{ENDPOINTS, Offender};
use crate::fixture::fixture;

/// Ids as they stand in a path or in a query.
const IDS: &str = "rt_123456 2xQbT9mWc0LrZkVn7YpA4e None null - * . .. %2e%2e %2F a%2Fb %00 %FF%FE %ff % %zz \
    a%20b %C3%BC ; a;b=c a:b @ kqzvbnwmxatyplo kqzvbnwmxatyploee KQZVBNWMXATYPLOE '%22%3Cscript%3E $(id) + a+b \
    ~ ! a,b a=b %25 %0d%0aX-Evil:1";

/// Paths that no endpoint has, or that are written in an odd way.
const NOWHERE: &str = "/nowhere /start/more /sessions /runtime /sessions/a/b/c /runtime/a/b /api /api/admin \
    /../list /./list /%6cist /list%2F /list;a /LIST /favicon.ico /.env /metrics/x /?a=b /list?% /list?=&&=";

#[tokio::test]
async fn malformed_ids_are_unknown() {
    let Some(fixture) = fixture() else { return };
    let offender = Offender::new(&fixture);
    let mut ids: Vec<_> = IDS.split(' ').map(ToOwned::to_owned).collect();
    ids.extend([255, 256, 257, 8000].map(|length| "a".repeat(length)));
    ids.push("%C3%BC".repeat(128));
    for id in ids {
        for path in [format!("/runtime/{id}"), format!("/sessions/{id}")] {
            offender.gets(&[400, 404], "GET", &path, "").await;
        }
        for query in [
            "/sessions/batch?ids=",
            "/image_exists?image=",
            "/build_status?build_id=",
        ] {
            offender.send("GET", &format!("{query}{id}"), "").await;
        }
        for method in ["PUT", "DELETE"] {
            let path = format!("/api/admin/warm-runtime-configs/{id}");
            offender.send(method, &path, "{}").await;
        }
    }
    offender.check_unharmed().await;
}

#[tokio::test]
async fn extra_slashes_and_unknown_paths_are_handled() {
    let Some(fixture) = fixture() else { return };
    let offender = Offender::new(&fixture);
    for (method, path) in ENDPOINTS {
        let (path, query) = path.split_once('?').unwrap_or((path, ""));
        let plain = format!("{path}?{query}");
        let plain = offender.send(method, &plain, "").await;
        for more in [
            format!("/{path}"),
            format!("///{path}"),
            format!("{path}/"),
            format!("/{path}//"),
        ] {
            let path = format!("{more}?{query}");
            offender.gets(&[plain], method, &path, "").await;
        }
    }
    for path in NOWHERE.split_whitespace() {
        offender.send("GET", path, "").await;
    }
    offender.check_unharmed().await;
}
