use super::*;

const fn seconds(n: u64) -> Duration {
    Duration::from_secs(n)
}

#[test]
fn the_latest_sign_of_life_counts() {
    let requests = |idle| {
        Some(Traffic {
            idle: seconds(idle),
            seen: true,
        })
    };
    let fresh = Some(Traffic {
        idle: seconds(1),
        seen: false,
    });
    assert_eq!(combine(Some(seconds(9)), requests(5)), Some(seconds(5)));
    assert_eq!(combine(Some(seconds(5)), requests(9)), Some(seconds(5)));
    assert_eq!(combine(Some(seconds(9)), None), Some(seconds(9)));
    // A gateway that has just started knows nothing of what was before.
    assert_eq!(combine(Some(seconds(9)), fresh), Some(seconds(9)));
    assert_eq!(combine(None, fresh), Some(seconds(1)));
    assert_eq!(combine(None, None), None);
}

#[test]
fn absurd_answers_are_harmless() {
    let now = Timestamp::from_second(1_000_000).unwrap();
    assert_eq!(before(now, Duration::MAX), Timestamp::MIN);
    assert_eq!(before(now, Duration::ZERO), now);
}
