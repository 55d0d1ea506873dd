use super::*;

const fn seconds(n: u64) -> Duration {
    Duration::from_secs(n)
}

#[test]
fn latest_activity_decides_idle_time() {
    let requests = |idle| {
        Some(Traffic {
            idle: seconds(idle),
            has_seen_request: true,
        })
    };
    let fresh = Some(Traffic {
        idle: seconds(1),
        has_seen_request: false,
    });
    assert_eq!(
        combine_idle_times(Some(seconds(9)), requests(5)),
        Some(seconds(5))
    );
    assert_eq!(
        combine_idle_times(Some(seconds(5)), requests(9)),
        Some(seconds(5))
    );
    assert_eq!(combine_idle_times(Some(seconds(9)), None), Some(seconds(9)));
    // A gateway that has just started has seen no requests.
    assert_eq!(
        combine_idle_times(Some(seconds(9)), fresh),
        Some(seconds(9))
    );
    assert_eq!(combine_idle_times(None, fresh), Some(seconds(1)));
    assert_eq!(combine_idle_times(None, None), None);
}

#[test]
fn extreme_idle_times_do_not_overflow() {
    let now = Timestamp::from_second(1_000_000).unwrap();
    assert_eq!(start_of_idle_time(now, Duration::MAX), Timestamp::MIN);
    assert_eq!(start_of_idle_time(now, Duration::ZERO), now);
}
