//! Extension headers: what pax records and GNU long names say about the next entry.

use rustix::fs::Timespec;

use super::number::{parse, time};
use super::path::within;
use crate::unpack::UnpackError;

/// Bytes of one extended attribute, as in the kernel.
const MAX_XATTR: u64 = 64 << 10;
/// Prefix of extended attributes in pax headers.
const XATTR: &[u8] = b"SCHILY.xattr.";

/// Records of one pax header.
#[derive(Debug, Default)]
pub(super) struct PaxRecords {
    pub(super) path: Option<Vec<u8>>,
    pub(super) link: Option<Vec<u8>>,
    pub(super) size: Option<u64>,
    pub(super) uid: Option<u64>,
    pub(super) gid: Option<u64>,
    pub(super) modified: Option<Timespec>,
    pub(super) xattrs: Vec<(Vec<u8>, Vec<u8>)>,
}

impl PaxRecords {
    /// Reads records of the form `LENGTH KEY=VALUE\n`.
    pub(super) fn parse(mut content: &[u8]) -> Result<Self, UnpackError> {
        const BAD: UnpackError = UnpackError::Format("pax header");
        let mut records = Self::default();
        while !content.is_empty() {
            let blank = content.iter().position(|byte| *byte == b' ').ok_or(BAD)?;
            let length: usize = parse(&content[..blank]).ok_or(BAD)?;
            if length > content.len() || length < blank + 2 {
                return Err(BAD);
            }
            let (record, rest) = content.split_at(length);
            content = rest;
            let record = record[blank + 1..].strip_suffix(b"\n").ok_or(BAD)?;
            let equals = record.iter().position(|byte| *byte == b'=').ok_or(BAD)?;
            let (key, value) = (&record[..equals], &record[equals + 1..]);
            match key.strip_prefix(XATTR) {
                Some(name) => records.set_xattr(name, value)?,
                None => records.set(key, value)?,
            }
        }
        Ok(records)
    }

    fn set_xattr(&mut self, name: &[u8], value: &[u8]) -> Result<(), UnpackError> {
        within("extended attribute", value.len() as u64, MAX_XATTR)?;
        self.xattrs.push((name.to_vec(), value.to_vec()));
        Ok(())
    }

    /// Applies a record. One without a value leaves that of the header.
    fn set(&mut self, key: &[u8], value: &[u8]) -> Result<(), UnpackError> {
        if key.starts_with(b"GNU.sparse.") {
            return Err(UnpackError::Kind("sparse file".into(), 'S'));
        }
        let number = || parse(value).ok_or(UnpackError::Format("pax header"));
        let is_set = !value.is_empty();
        match key {
            b"path" => self.path = is_set.then(|| value.to_vec()),
            b"linkpath" => self.link = is_set.then(|| value.to_vec()),
            b"size" => self.size = is_set.then(number).transpose()?,
            b"uid" => self.uid = is_set.then(number).transpose()?,
            b"gid" => self.gid = is_set.then(number).transpose()?,
            b"mtime" => {
                let time = || time(value).ok_or(UnpackError::Format("pax header"));
                self.modified = is_set.then(time).transpose()?;
            }
            _ => {}
        }
        Ok(())
    }
}
