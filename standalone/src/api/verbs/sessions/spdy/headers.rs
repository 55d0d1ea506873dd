//! Header blocks of SPDY/3: pairs of name and value, compressed by zlib with a fixed dictionary and
//! with the earlier blocks of the connection.

use std::{collections::HashMap, sync::LazyLock};

use bytes::Buf as _;
use flate2::{Decompress, FlushDecompress};

/// Maximum number of bytes of a header block. Those of kubectl have about 60.
const MAX_BLOCK_BYTES: usize = 4 << 10;

/// Start of the compressed blocks of one direction: without a dictionary.
pub(super) const START: [u8; 2] = [0x78, 0x01];

/// Compressed block without headers: zero, and an empty block that makes the receiver deliver it.
pub(super) const NONE: [u8; 14] = [0, 4, 0, 0xfb, 0xff, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff];

/// Words of the dictionary, which precedes each with its length.
const WORDS: &str = "options|head|post|put|delete|trace|accept|accept-charset|accept-encoding|\
    accept-language|accept-ranges|age|allow|authorization|cache-control|connection|content-base|\
    content-encoding|content-language|content-length|content-location|content-md5|content-range|\
    content-type|date|etag|expect|expires|from|host|if-match|if-modified-since|if-none-match|\
    if-range|if-unmodified-since|last-modified|location|max-forwards|pragma|proxy-authenticate|\
    proxy-authorization|range|referer|retry-after|server|te|trailer|transfer-encoding|upgrade|\
    user-agent|vary|via|warning|www-authenticate|method|get|status|200 OK|version|HTTP/1.1|url|\
    public|set-cookie|keep-alive|origin";

/// Rest of the dictionary.
const TEXT: &str = "10010120120220520630030230330430530630740240540640740840941041141241341441541\
    6417502504505203 Non-Authoritative Information204 No Content301 Moved Permanently400 Bad \
    Request401 Unauthorized403 Forbidden404 Not Found500 Internal Server Error501 Not \
    Implemented503 Service UnavailableJan Feb Mar Apr May Jun Jul Aug Sept Oct Nov Dec 00:00:00 \
    Mon, Tue, Wed, Thu, Fri, Sat, Sun, GMTchunked,text/html,image/png,image/jpg,image/gif,\
    application/xml,application/xhtml+xml,text/plain,text/javascript,publicprivatemax-age=gzip,\
    deflate,sdchcharset=utf-8charset=iso-8859-1,utf-,*,enq=0.";

pub(super) static DICTIONARY: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let words = WORDS.split('|');
    let mut dictionary: Vec<u8> = words.flat_map(prefixed).collect();
    dictionary.extend(TEXT.as_bytes());
    dictionary
});

/// A text with its length before it.
pub(super) fn prefixed(text: &str) -> Vec<u8> {
    let length = u32::try_from(text.len()).unwrap_or_default();
    [&length.to_be_bytes(), text.as_bytes()].concat()
}

/// Reads the header blocks of one direction.
pub(super) struct HeaderInflater(Decompress);

impl HeaderInflater {
    pub(super) fn new() -> Self {
        Self(Decompress::new(true))
    }

    /// Headers of the next block. `None` if it is malformed or too long: no other can be read then.
    pub(super) fn inflate(&mut self, mut compressed: &[u8]) -> Option<HashMap<String, String>> {
        let mut block = Vec::with_capacity(MAX_BLOCK_BYTES);
        let mut result = self.step(&mut compressed, &mut block);
        if let Err(error) = &result
            && error.needs_dictionary().is_some()
        {
            self.0.set_dictionary(&DICTIONARY).ok()?;
            result = self.step(&mut compressed, &mut block);
        }
        let is_whole = result.is_ok() && compressed.is_empty() && block.len() < block.capacity();
        parse(&block).filter(|_| is_whole)
    }

    fn step(
        &mut self,
        compressed: &mut &[u8],
        block: &mut Vec<u8>,
    ) -> Result<flate2::Status, flate2::DecompressError> {
        let before = self.0.total_in();
        let result = self
            .0
            .decompress_vec(compressed, block, FlushDecompress::Sync);
        let read = usize::try_from(self.0.total_in() - before).unwrap_or_default();
        compressed.advance(read);
        result
    }
}

/// Later ones of a name replace earlier ones.
fn parse(mut block: &[u8]) -> Option<HashMap<String, String>> {
    let number = block.try_get_u32().ok()?;
    let mut headers = HashMap::new();
    for _ in 0..number {
        headers.insert(text(&mut block)?, text(&mut block)?);
    }
    Some(headers)
}

fn text(block: &mut &[u8]) -> Option<String> {
    let length = usize::try_from(block.try_get_u32().ok()?).ok()?;
    let (text, rest) = block.split_at_checked(length)?;
    *block = rest;
    String::from_utf8(text.to_vec()).ok()
}
