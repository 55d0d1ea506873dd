//! The sandbox's own user database.
//!
//! The binary is static, and the lookups of the C library would load shared objects of the image, so
//! the two files are read here.

use std::fs;
use std::io;
use std::path::PathBuf;

pub(super) const PASSWD: &str = "/etc/passwd";
pub(super) const GROUP: &str = "/etc/group";

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct User {
    pub(super) name: String,
    pub(super) uid: u32,
    pub(super) gid: u32,
    pub(super) home: PathBuf,
    pub(super) shell: PathBuf,
    /// All groups, the primary one included.
    pub(super) groups: Vec<u32>,
}

#[derive(Debug, thiserror::Error)]
pub(super) enum UserError {
    #[error("cannot read {PASSWD}")]
    Read(#[source] io::Error),
}

pub(super) fn has_uid(passwd: &str, uid: u32) -> bool {
    passwd.lines().filter_map(parse).any(|user| user.uid == uid)
}

/// Of a name or a number.
pub(super) fn group_id(group: &str) -> Option<u32> {
    let known = fs::read_to_string(GROUP).unwrap_or_default();
    let named = known.lines().find_map(|line| {
        let mut fields = line.split(':');
        let found = fields.next() == Some(group);
        found.then(|| fields.nth(1)?.parse().ok()).flatten()
    });
    let standard = || (group == "root").then_some(0);
    named.or_else(|| group.parse().ok()).or_else(standard)
}

/// Returns a user with all groups. A system without the file has no users.
pub(super) fn find(wanted: impl Fn(&User) -> bool) -> Result<Option<User>, UserError> {
    let passwd = match fs::read_to_string(PASSWD) {
        Ok(passwd) => passwd,
        Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
        Err(error) => return Err(UserError::Read(error)),
    };
    // Without the file there are no supplementary groups.
    let group = fs::read_to_string(GROUP).unwrap_or_default();
    Ok(find_in(&passwd, &group, wanted))
}

fn find_in(passwd: &str, group: &str, wanted: impl Fn(&User) -> bool) -> Option<User> {
    let mut user = passwd.lines().filter_map(parse).find(wanted)?;
    let memberships: Vec<u32> = memberships(group, &user.name).collect();
    user.groups.extend(memberships);
    user.groups.sort_unstable();
    user.groups.dedup();
    Some(user)
}

/// `name:password:uid:gid:comment:home:shell`
fn parse(line: &str) -> Option<User> {
    let fields: Vec<&str> = line.split(':').collect();
    let [name, _, uid, gid, _, home, shell] = fields[..] else {
        return None;
    };
    let gid = gid.parse().ok()?;
    Some(User {
        name: name.to_owned(),
        uid: uid.parse().ok()?,
        gid,
        home: home.into(),
        shell: if shell.is_empty() { "/bin/sh" } else { shell }.into(),
        groups: vec![gid],
    })
}

/// `name:password:gid:member,member`
fn memberships<'a>(group: &'a str, name: &'a str) -> impl Iterator<Item = u32> + 'a {
    group.lines().filter_map(move |line| {
        let fields: Vec<&str> = line.split(':').collect();
        let [_, _, gid, members] = fields[..] else {
            return None;
        };
        let member = members.split(',').any(|member| member == name);
        member.then(|| gid.parse().ok()).flatten()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const PASSWD: &str = "root:x:0:0:root:/root:/bin/bash\nbroken\n\
                          openhands:x:1000:0::/home/openhands:\n";
    const GROUP: &str = "root:x:0:\nsudo:x:27:other,openhands\nadm:x:4:openhand\n";

    #[test]
    fn a_user_comes_with_all_groups() {
        let user = find_in(PASSWD, GROUP, |user| user.name == "openhands").unwrap();
        assert_eq!((user.uid, user.gid), (1000, 0));
        assert_eq!(user.groups, [0, 27]);
        assert_eq!(user.shell, PathBuf::from("/bin/sh"));
    }

    #[test]
    fn unknown_users_and_broken_lines_are_no_users() {
        assert_eq!(find_in(PASSWD, GROUP, |user| user.name == "broken"), None);
        assert_eq!(find_in(PASSWD, GROUP, |user| user.name.is_empty()), None);
    }
}
