//! Tests of the binary over HTTP, in temporary directories.
//!
//! `cfg(test)` is always true here; with it, clippy treats helpers as test code as well.

#[cfg(test)]
mod agent_skills;
#[cfg(test)]
mod client;
#[cfg(test)]
mod conformance;
#[cfg(test)]
mod editor;
#[cfg(test)]
mod files;
#[cfg(test)]
mod fixture;
#[cfg(test)]
mod jupyter;
#[cfg(test)]
mod mcp;
#[cfg(test)]
mod minimal_images;
#[cfg(test)]
mod plugins;
#[cfg(test)]
mod python_client;
#[cfg(test)]
mod serve;
#[cfg(test)]
mod soak;
#[cfg(test)]
mod supervise;
#[cfg(test)]
mod transfer;
#[cfg(test)]
mod viewer;
#[cfg(test)]
mod vscode;
