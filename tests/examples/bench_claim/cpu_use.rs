//! CPU time of all programs of this machine: they share its cores with what is measured.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::Instant;

use crate::process;

/// Use below this is not shown, in cores.
const LEAST: f64 = 0.01;

/// CPU time of every program at one moment.
#[derive(Debug)]
pub(crate) struct CpuUse {
    at: Instant,
    programs: BTreeMap<String, Duration>,
}

impl CpuUse {
    pub(crate) fn now() -> Self {
        let mut programs = BTreeMap::new();
        for entry in std::fs::read_dir("/proc").unwrap().map_while(Result::ok) {
            // It is no process, or has ended.
            let Ok(stat) = std::fs::read_to_string(entry.path().join("stat")) else {
                continue;
            };
            if let Some(program) = stat.split(['(', ')']).nth(1) {
                *programs.entry(program.to_owned()).or_default() += process::cpu(&stat);
            }
        }
        let at = Instant::now();
        Self { at, programs }
    }

    /// Cores that each program has used since then, for example `etcd 0.12, kwok 0.08`.
    pub(crate) fn since(&self, earlier: &Self) -> String {
        let took = self.at.duration_since(earlier.at);
        let used = self.programs.iter().map(|(program, cpu)| {
            let before = earlier.programs.get(program).copied();
            let used = cpu.saturating_sub(before.unwrap_or_default());
            (program, used.div_duration_f64(took))
        });
        let used = used.filter(|(_, cores)| *cores >= LEAST);
        let used: Vec<_> = used
            .map(|(program, cores)| format!("{program} {cores:.2}"))
            .collect();
        used.join(", ")
    }
}
