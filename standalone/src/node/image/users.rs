//! Users and groups of an image, from its `/etc/passwd` and `/etc/group`.

use std::collections::BTreeMap;
use std::path::Path;

use images::Image;

use super::ImageError;

/// Bytes read of each file.
const MAX_DATABASE: u64 = 1 << 20;

/// User of an image.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Account {
    pub gid: u32,
    pub home: String,
    /// Supplementary groups.
    pub groups: Vec<u32>,
}

/// User and group databases of an image.
#[derive(Debug, Default)]
pub(super) struct Users {
    passwd: Vec<(String, u32, u32, String)>,
    groups: Vec<(String, u32, Vec<String>)>,
}

impl Users {
    pub(super) fn read(image: &Image) -> Self {
        let text = |path: &str| {
            let content = image
                .read(Path::new(path), MAX_DATABASE)
                .unwrap_or_default();
            String::from_utf8_lossy(&content).into_owned()
        };
        Self::parse(&text("/etc/passwd"), &text("/etc/group"))
    }

    /// Lines that are not valid are left out, as by the C library.
    pub(super) fn parse(passwd: &str, group: &str) -> Self {
        let user = |line: &str| {
            let fields: Vec<&str> = line.split(':').collect();
            let [name, _, uid, gid, _, home, ..] = fields.as_slice() else {
                return None;
            };
            let (uid, gid) = (uid.parse().ok()?, gid.parse().ok()?);
            Some(((*name).to_owned(), uid, gid, (*home).to_owned()))
        };
        let group_of = |line: &str| {
            let fields: Vec<&str> = line.split(':').collect();
            let [name, _, gid, members] = fields.as_slice() else {
                return None;
            };
            let members = members.split(',').map(str::to_owned).collect();
            Some(((*name).to_owned(), gid.parse().ok()?, members))
        };
        Self {
            passwd: passwd.lines().filter_map(user).collect(),
            groups: group.lines().filter_map(group_of).collect(),
        }
    }

    /// Ids of `USER[:GROUP]` of a configuration; empty is root.
    pub(super) fn resolve(&self, text: &str) -> Result<(u32, u32), ImageError> {
        let (user, group) = text.split_once(':').unwrap_or((text, ""));
        let number = user.parse().ok().or(user.is_empty().then_some(0));
        let known = match number {
            Some(number) => self.passwd.iter().find(|known| known.1 == number),
            None => self.passwd.iter().find(|known| known.0 == user),
        };
        let unknown = || ImageError::User(user.chars().take(80).collect());
        let uid = known.map(|known| known.1).or(number).ok_or_else(unknown)?;
        if group.is_empty() {
            return Ok((uid, known.map_or(0, |known| known.2)));
        }
        let named = || self.groups.iter().find(|known| known.0 == group);
        let gid = group.parse().ok().or_else(|| named().map(|known| known.1));
        let unknown = || ImageError::Group(group.chars().take(80).collect());
        Ok((uid, gid.ok_or_else(unknown)?))
    }

    pub(super) fn accounts(&self) -> BTreeMap<u32, Account> {
        let mut accounts = BTreeMap::new();
        for (name, uid, gid, home) in &self.passwd {
            let of_user = self.groups.iter().filter(|group| group.2.contains(name));
            // The first line of a number counts.
            accounts.entry(*uid).or_insert_with(|| Account {
                gid: *gid,
                home: home.clone(),
                groups: of_user.map(|group| group.1).collect(),
            });
        }
        accounts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn users() -> Users {
        Users::parse(
            "root:x:0:0:root:/root:/bin/sh\nbad:x:y:0::/:\nweb:x:33:34::/srv/web:/bin/sh\n\
             again:x:33:1::/other:\n",
            "root:x:0:\nweb:x:34:\nlog:x:4:web,other\nstaff:x:50:other\n",
        )
    }

    #[test]
    fn user_is_resolved_by_number_and_by_name() {
        for (text, ids) in [
            ("", (0, 0)),
            ("0", (0, 0)),
            ("web", (33, 34)),
            ("33", (33, 34)),
            ("7", (7, 0)),
            ("web:log", (33, 4)),
            ("7:8", (7, 8)),
            (":log", (0, 4)),
        ] {
            assert_eq!(users().resolve(text).unwrap(), ids, "{text}");
        }
        let error = |text| users().resolve(text).unwrap_err().to_string();
        assert_eq!(error("ghost"), "image has no user \"ghost\"");
        assert_eq!(error("web:ghost"), "image has no group \"ghost\"");
    }

    #[test]
    fn accounts_have_home_and_groups_of_first_line() {
        let accounts = users().accounts();
        assert_eq!(accounts.len(), 2);
        let web = &accounts[&33];
        assert_eq!((web.gid, web.home.as_str()), (34, "/srv/web"));
        assert_eq!(web.groups, [4]);
    }
}
