//! The binary as its users see it: started in temporary directories, spoken to over HTTP.
//!
//! `cfg(test)` is always true here; it tells clippy that helpers are test code as well.

#[cfg(test)]
mod client;
#[cfg(test)]
mod conformance;
#[cfg(test)]
mod editor;
#[cfg(test)]
mod files;
#[cfg(test)]
mod jupyter;
#[cfg(test)]
mod mcp;
#[cfg(test)]
mod plugins;
#[cfg(test)]
mod roots;
#[cfg(test)]
mod serve;
#[cfg(test)]
mod session;
#[cfg(test)]
mod shell;
#[cfg(test)]
mod skills;
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
#[cfg(test)]
mod world;
