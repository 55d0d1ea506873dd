use super::*;

fn now() -> Timestamp {
    "2026-01-01T01:00:00Z".parse().unwrap()
}

fn cells(columns: &[Column], object: &Value) -> Vec<Value> {
    columns
        .iter()
        .map(|column| column.cell(object, now()))
        .collect()
}

#[test]
fn ages_match_kubectl() {
    let day = 86_400;
    for (seconds, text) in [
        (-5, "<invalid>"),
        (0, "0s"),
        (119, "119s"),
        (120, "2m"),
        (125, "2m5s"),
        (599, "9m59s"),
        (600, "10m"),
        (3 * 3600, "3h"),
        (3 * 3600 + 60, "3h1m"),
        (9 * 3600 + 60, "9h"),
        (2 * day, "2d"),
        (2 * day + 3600, "2d1h"),
        (30 * day, "30d"),
        (3 * 365 * day + day, "3y1d"),
        (9 * 365 * day, "9y"),
    ] {
        assert_eq!(human(seconds), text);
    }
}

#[test]
fn pods_show_ready_status_and_restarts() {
    let pod = json!({
        "metadata": {"name": "p", "creationTimestamp": "2026-01-01T00:55:00Z"},
        "spec": {"containers": [{"name": "a"}], "nodeName": "n"},
        "status": {"phase": "Running", "podIP": "10.0.0.1", "containerStatuses": [{"ready": false,
            "restartCount": 2,
            "state": {"waiting": {"reason": "CrashLoopBackOff"}},
            "lastState": {"terminated": {"finishedAt": "2026-01-01T00:59:00Z"}}}]},
    });
    let cells = cells(&builtin_columns("pods"), &pod);
    let expected = [
        "p",
        "0/1",
        "CrashLoopBackOff",
        "2 (60s ago)",
        "5m",
        "10.0.0.1",
        "n",
    ];
    assert_eq!(cells[..7], expected);
}

#[test]
fn pod_status_column_matches_server() {
    let oom = json!({"terminated": {"reason": "OOMKilled", "exitCode": 137}});
    let oom = json!({"status": {"containerStatuses": [{ "state": oom }]}});
    let init = json!({"spec": {"initContainers": [{}]},
        "status": {"initContainerStatuses": [{"state": {"running": {}}}]}});
    let deleted = json!({"metadata": {"deletionTimestamp": "x"}, "status": {"phase": "Running"}});
    for (pod, word) in [
        (json!({"status": {"phase": "Pending"}}), "Pending"),
        (deleted, "Terminating"),
        (
            json!({"status": {"phase": "Failed", "reason": "Evicted"}}),
            "Evicted",
        ),
        (oom, "OOMKilled"),
        (init, "Init:0/1"),
    ] {
        assert_eq!(cells(&builtin_columns("pods"), &pod)[2], word, "{pod}");
    }
}

#[test]
fn printer_columns_follow_their_paths() {
    let column = |kind: &str, path: &str| {
        let definition = CustomResourceColumnDefinition {
            name: "X".into(),
            type_: kind.into(),
            json_path: path.into(),
            ..Default::default()
        };
        custom_columns(&[definition]).remove(1)
    };
    let object = json!({"metadata": {"creationTimestamp": "2026-01-01T00:58:00Z",
        "labels": {"a.b/c": "dotted"}},
        "spec": {"n": 3, "list": [{"v": 1}, {"v": 2}]},
        "status": {"conditions": [{"type": "Paused", "status": "False"},
            {"type": "Ready", "status": "True"}]}});
    for (kind, path, expected) in [
        (
            "string",
            r#".status.conditions[?(@.type=="Ready")].status"#,
            json!("True"),
        ),
        ("string", ".metadata.labels['a.b/c']", json!("dotted")),
        ("integer", ".spec.n", json!(3)),
        ("string", ".spec.n", json!("3")),
        ("string", ".spec.list[1].v", json!("2")),
        ("string", ".spec.list[*].v", json!("1")),
        ("string", ".spec.absent", Value::Null),
        ("date", ".metadata.creationTimestamp", json!("2m")),
    ] {
        assert_eq!(column(kind, path).cell(&object, now()), expected, "{path}");
    }
}
