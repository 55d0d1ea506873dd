//! Progress of a pull.

/// State of one pull, for people. Bytes are those of compressed layers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Progress {
    /// Bytes to download; 0 until the manifest is known.
    pub total: u64,
    pub downloaded: u64,
    pub layers: usize,
    /// Layers that are unpacked.
    pub unpacked: usize,
}

impl std::fmt::Display for Progress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.layers == 0 {
            return f.write_str("reading the manifest");
        }
        let (done, total) = (megabytes(self.downloaded), megabytes(self.total));
        let (unpacked, layers) = (self.unpacked, self.layers);
        write!(
            f,
            "{done} of {total} MB downloaded, {unpacked} of {layers} layers unpacked"
        )
    }
}

/// Megabytes, rounded up.
fn megabytes(bytes: u64) -> u64 {
    bytes.div_ceil(1_000_000)
}
