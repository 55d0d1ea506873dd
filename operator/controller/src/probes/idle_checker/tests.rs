use super::*;

#[test]
fn latest_activity_decides_idle_time() {
    let requests = |idle| Some((idle, true));
    // A gateway that has just started has seen no requests.
    let fresh = Some((1, false));
    for (server, gateways, expected) in [
        (Some(9), requests(5), Some(5)),
        (Some(5), requests(9), Some(5)),
        (Some(9), None, Some(9)),
        (Some(9), fresh, Some(9)),
        (None, fresh, Some(1)),
        (None, None, None),
    ] {
        let traffic = gateways.map(|(idle, has_seen_request)| Traffic {
            idle: Duration::from_secs(idle),
            has_seen_request,
        });
        let combined = combine_idle_times(server.map(Duration::from_secs), traffic);
        let expected = expected.map(Duration::from_secs);
        assert_eq!(combined, expected, "{server:?} {gateways:?}");
    }
}

#[test]
fn extreme_idle_times_do_not_overflow() {
    let now = Timestamp::from_second(1_000_000).unwrap();
    assert_eq!(start_of_idle_time(now, Duration::MAX), Timestamp::MIN);
    assert_eq!(start_of_idle_time(now, Duration::ZERO), now);
}
