//! The binary as its users see it: started in temporary directories, spoken to over HTTP.

mod client;
mod files;
mod roots;
mod serve;
mod shell;
mod supervise;
