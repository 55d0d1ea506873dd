//! Scripts of Pods: how the next Pod of a name starts.

/// Start of a Pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum PodScript {
    #[default]
    Runs,
    /// It runs, and its command never becomes ready.
    NeverReady,
    /// Its image cannot be pulled.
    CannotPull,
    /// No node takes it.
    Unschedulable,
    /// Unschedulable, because its volume is never provisioned.
    LacksVolume,
    /// A Secret that its environment names does not exist.
    LacksSecret,
    /// Deleted immediately by another client.
    Vanishes,
}
