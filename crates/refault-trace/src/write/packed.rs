//! A file that is written plain or compressed.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use flate2::write::GzEncoder;

const BUFFER: usize = 1 << 18;
const ZSTD_LEVEL: i32 = 3;

/// How a file is packed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Compression {
    /// Not at all.
    #[default]
    None,
    /// zstd, level 3.
    Zstd,
    /// gzip, level 6.
    Gzip,
}

impl Compression {
    /// By the extension of a path: `.zst`, `.gz` or neither.
    pub fn of_path(path: &Path) -> Compression {
        match path.extension().and_then(|extension| extension.to_str()) {
            Some(extension) if extension.eq_ignore_ascii_case("zst") => Compression::Zstd,
            Some(extension) if extension.eq_ignore_ascii_case("gz") => Compression::Gzip,
            _ => Compression::None,
        }
    }
}

/// Bytes on their way into a file.
pub(super) enum Packed {
    Plain(BufWriter<File>),
    Zstd(zstd::stream::write::Encoder<'static, BufWriter<File>>),
    Gzip(GzEncoder<BufWriter<File>>),
}

impl Packed {
    pub(super) fn new(file: File, compression: Compression) -> io::Result<Packed> {
        let file = BufWriter::with_capacity(BUFFER, file);
        Ok(match compression {
            Compression::None => Packed::Plain(file),
            Compression::Zstd => {
                let mut encoder = zstd::stream::write::Encoder::new(file, ZSTD_LEVEL)?;
                encoder.include_checksum(true)?;
                Packed::Zstd(encoder)
            }
            Compression::Gzip => Packed::Gzip(GzEncoder::new(file, flate2::Compression::default())),
        })
    }

    pub(super) fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Packed::Plain(sink) => sink.write_all(bytes),
            Packed::Zstd(sink) => sink.write_all(bytes),
            Packed::Gzip(sink) => sink.write_all(bytes),
        }
    }

    /// Ends the compression and hands everything to the system.
    pub(super) fn finish(self) -> io::Result<()> {
        let mut file = match self {
            Packed::Plain(sink) => sink,
            Packed::Zstd(sink) => sink.finish()?,
            Packed::Gzip(sink) => sink.finish()?,
        };
        file.flush()
    }
}
