//! Whose answer is computed next. Each costs some ten milliseconds of a core, and anybody may send
//! wrong ones: so there are two queues, and where somebody has failed a moment ago, or has another
//! login under way, they wait in the one for such, behind each other and not before anybody else.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet, VecDeque};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout};

use crate::gateway::serve::origin;

/// How long a login waits for its turn.
const TURN_LIMIT: Duration = Duration::from_secs(5);
/// How long a failure is remembered.
const FAILED_FOR: Duration = Duration::from_mins(10);
/// Most origins whose failure is remembered.
const MOST: usize = 4096;
/// Most logins of one origin in the queue of the suspect. The next ones are refused, so that a flood
/// leaves turns to others who have failed.
const MOST_SUSPECTS: usize = 16;

/// Both queues. One login is computed of each at a time.
#[derive(Debug, Clone)]
pub(super) struct Turns(Arc<State>);

#[derive(Debug)]
struct State {
    trusted: Arc<Semaphore>,
    suspect: Arc<Semaphore>,
    origins: Mutex<Origins>,
}

#[derive(Debug, Default)]
struct Origins {
    /// Those with a login in the queue of the trusted.
    busy: HashSet<IpAddr>,
    /// How many each has in the queue of the suspect.
    suspects: HashMap<IpAddr, usize>,
    failed: HashMap<IpAddr, Instant>,
    /// Oldest first.
    order: VecDeque<IpAddr>,
}

/// A turn, until it is dropped.
#[derive(Debug)]
pub(super) struct Turn {
    place: Place,
    _permit: OwnedSemaphorePermit,
}

/// A place in a queue; that of the trusted is one for each origin.
#[derive(Debug)]
struct Place {
    turns: Turns,
    origin: IpAddr,
    trusted: bool,
}

impl Default for Turns {
    fn default() -> Self {
        let queue = || Arc::new(Semaphore::new(1));
        Self(Arc::new(State {
            trusted: queue(),
            suspect: queue(),
            origins: Mutex::default(),
        }))
    }
}

impl Turns {
    /// Waits for a turn; `None` if it does not come in time.
    pub(super) async fn take(&self, address: IpAddr) -> Option<Turn> {
        let place = self.place(origin(address))?;
        let queue = if place.trusted {
            &self.0.trusted
        } else {
            &self.0.suspect
        };
        let permit = timeout(TURN_LIMIT, queue.clone().acquire_owned()).await;
        Some(Turn {
            place,
            _permit: permit.ok()?.ok()?,
        })
    }

    fn place(&self, origin: IpAddr) -> Option<Place> {
        let mut origins = self.0.origins.lock();
        let trusted = !origins.has_failed(origin) && origins.busy.insert(origin);
        if !trusted {
            let suspects = origins.suspects.entry(origin).or_default();
            if *suspects >= MOST_SUSPECTS {
                return None;
            }
            *suspects += 1;
        }
        Some(Place {
            turns: self.clone(),
            origin,
            trusted,
        })
    }
}

impl Turn {
    /// Notes what came of it.
    pub(super) fn end(self, proven: bool) {
        let mut origins = self.place.turns.0.origins.lock();
        if proven {
            origins.failed.remove(&self.place.origin);
        } else {
            origins.note_failure(self.place.origin);
        }
    }
}

impl Origins {
    fn has_failed(&self, origin: IpAddr) -> bool {
        let failed = self.failed.get(&origin);
        failed.is_some_and(|at| at.elapsed() < FAILED_FOR)
    }

    fn note_failure(&mut self, origin: IpAddr) {
        if self.failed.insert(origin, Instant::now()).is_none() {
            self.order.push_back(origin);
        }
        if self.order.len() > MOST
            && let Some(oldest) = self.order.pop_front()
        {
            self.failed.remove(&oldest);
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut origins = self.turns.0.origins.lock();
        if self.trusted {
            origins.busy.remove(&self.origin);
        } else if let Entry::Occupied(mut suspects) = origins.suspects.entry(self.origin) {
            *suspects.get_mut() -= 1;
            if *suspects.get() == 0 {
                suspects.remove();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(n: u32) -> IpAddr {
        std::net::Ipv4Addr::from(n).into()
    }

    #[tokio::test(start_paused = true)]
    async fn who_has_failed_keeps_nobody_else_waiting() {
        let turns = Turns::default();
        let (bad, good) = (address(1), address(2));
        turns.take(bad).await.unwrap().end(false);
        let held = turns.take(bad).await.unwrap();
        let start = Instant::now();
        assert!(turns.take(bad).await.is_none());
        assert_eq!(start.elapsed(), TURN_LIMIT);
        turns.take(good).await.unwrap().end(true);
        assert_eq!(start.elapsed(), TURN_LIMIT);
        // Whoever has proven the password is trusted again, others when it was long ago.
        held.end(true);
        let _suspect = turns.0.suspect.clone().acquire_owned().await.unwrap();
        turns.take(bad).await.unwrap().end(false);
        assert!(turns.take(bad).await.is_none());
        tokio::time::advance(FAILED_FOR).await;
        assert!(turns.take(bad).await.is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn a_crowd_from_one_place_is_one_among_others() {
        const COST: Duration = Duration::from_millis(100);
        let (turns, start) = (Turns::default(), Instant::now());
        let login = async |address| {
            let turn = turns.take(address).await;
            tokio::time::sleep(COST).await;
            turn.is_some()
        };
        let crowd = futures::future::join_all((0..1000).map(|_| login(address(1))));
        let other = async {
            assert!(turns.take(address(2)).await.is_some());
            start.elapsed()
        };
        let (crowd, waited) = tokio::join!(crowd, other);
        assert_eq!(waited, COST);
        let served = crowd.iter().filter(|served| **served).count();
        assert_eq!(served, 1 + MOST_SUSPECTS);
        assert!(turns.0.origins.lock().suspects.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn a_flood_leaves_turns_to_others_who_have_failed() {
        let turns = Turns::default();
        for n in [1, 2] {
            turns.take(address(n)).await.unwrap().end(false);
        }
        let login = async |address| {
            let Some(turn) = turns.take(address).await else {
                return false;
            };
            tokio::time::sleep(Duration::from_millis(100)).await;
            turn.end(false);
            true
        };
        let flood = futures::future::join_all((0..1000).map(|_| login(address(1))));
        let (_, other) = tokio::join!(flood, login(address(2)));
        assert!(other);
    }

    #[tokio::test]
    async fn only_so_many_failures_are_remembered() {
        let turns = Turns::default();
        for n in 0..u32::try_from(MOST).unwrap() + 10 {
            turns.take(address(n)).await.unwrap().end(false);
        }
        let origins = turns.0.origins.lock();
        assert_eq!((origins.failed.len(), origins.order.len()), (MOST, MOST));
        assert!(!origins.has_failed(address(9)) && origins.has_failed(address(10)));
        assert!(origins.busy.is_empty());
    }
}
