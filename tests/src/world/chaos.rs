//! Accidents that happen to Pods by chance, at their start or some time later.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::sleep;

use super::dice::Dice;
use super::node::{Fate, ScriptedNode};

/// How often, and from which chance.
#[derive(Debug)]
pub(super) struct Chaos {
    dice: Dice,
    percent: u64,
    /// Accidents so far.
    pub(super) accidents: usize,
}

/// What happens to one Pod.
#[derive(Debug, Clone, Copy)]
pub(super) enum Accident {
    /// It does not start as it should; most of such trouble passes.
    Start(Fate, Option<Duration>),
    Later(Blow, Duration),
}

/// What happens to a Pod that runs.
#[derive(Debug, Clone, Copy)]
pub(super) enum Blow {
    Crashes,
    OutOfMemory,
    Evicted,
    NodeLost,
    Deleted,
}

/// The latest moment of a Pod's life at which something happens to it.
const LATEST: Duration = Duration::from_hours(3);
/// The longest that trouble with a start lasts, if it passes.
const LONGEST_TROUBLE: Duration = Duration::from_mins(5);

impl Chaos {
    pub(super) fn new(seed: u64, percent: u64) -> Self {
        Self {
            dice: Dice::new(seed),
            percent,
            accidents: 0,
        }
    }

    /// Decides about one Pod.
    pub(super) fn roll(&mut self) -> Option<Accident> {
        let dice = &mut self.dice;
        if !dice.percent(self.percent) {
            return None;
        }
        self.accidents += 1;
        if dice.percent(30) {
            let fates = [Fate::NeverReady, Fate::CannotPull, Fate::Unschedulable];
            let passes = dice.percent(80);
            let after = passes.then(|| dice.time(LONGEST_TROUBLE));
            return Some(Accident::Start(dice.one_of(&fates), after));
        }
        let blows = [
            Blow::Crashes,
            Blow::OutOfMemory,
            Blow::Evicted,
            Blow::NodeLost,
            Blow::Deleted,
        ];
        Some(Accident::Later(dice.one_of(&blows), dice.time(LATEST)))
    }
}

impl ScriptedNode {
    /// Carries out an accident of the Pod with this uid, when its time has come.
    pub(super) async fn suffer(self: Arc<Self>, name: String, uid: String, accident: Accident) {
        match accident {
            Accident::Start(_, None) => {}
            Accident::Start(_, Some(after)) => {
                sleep(after).await;
                self.heal(&name).await;
            }
            Accident::Later(blow, after) => {
                sleep(after).await;
                if self.is_running(&name, &uid) {
                    self.strike(&name, blow).await;
                }
            }
        }
    }

    async fn strike(&self, name: &str, blow: Blow) {
        match blow {
            Blow::Crashes => self.restart(name, "Error").await,
            Blow::OutOfMemory => self.restart(name, "OOMKilled").await,
            Blow::Evicted => self.evict(name).await,
            Blow::NodeLost => self.lose(name).await,
            Blow::Deleted => self.remove(name).await,
        }
    }
}
