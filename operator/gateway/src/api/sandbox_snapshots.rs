//! Snapshots of sandboxes, an extension of the remote runtime API (`docs/gateway.md`, "Snapshots").

mod create;
mod delete;
mod image;
mod info;
mod list;
mod read;
mod start;
mod template;

use super::endpoint::Endpoint;

pub(super) fn endpoints() -> [Endpoint; 6] {
    [
        create::endpoint(),
        list::endpoint(),
        read::endpoint(),
        delete::endpoint(),
        start::endpoint(),
        image::endpoint(),
    ]
}
