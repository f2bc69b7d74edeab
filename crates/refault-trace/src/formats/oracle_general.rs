//! libCacheSim's `oracleGeneral`: packed little-endian records of 24 bytes: u32 time in seconds, u64 object, u32 size,
//! i64 number of the next access to the object (-1 none; not used here).
//!
//! Objects become pages as [`super::object`] says. With a unit of block numbers, objects are blocks. From there on, the
//! bytes that the size counts become the 4 KiB pages they touch.

use super::lis::block_detail;
use super::numbers::{page, pages_touched};
use super::object::{Objects, numbered, size_of_32_bits};
use super::request::{Request, Requests, Weight, kind_detail};
use crate::error::Place;
use crate::input::Input;
use crate::reader::{Details, ObjectPages, Options};
use crate::remark::{Counts, Doubt, Remark};
use crate::{Kind, TraceError};

/// Bytes of a record.
pub(crate) const RECORD_BYTES: usize = 24;
const SECOND_NS: u64 = 1_000_000_000;
/// The largest mark that is not a number of an access.
const NEXT_UNKNOWN: i64 = -2;

pub(crate) struct OracleGeneral {
    kind: Kind,
    kind_asked: bool,
    block_bytes: Option<u64>,
    objects: Objects,
    limit: u64,
    counts: Counts,
}

impl OracleGeneral {
    pub(crate) fn new(options: &Options) -> OracleGeneral {
        let limit = options.limits.request_bytes;
        OracleGeneral {
            kind: options.kind.unwrap_or(Kind::Fd),
            kind_asked: options.kind.is_some(),
            block_bytes: options.block_bytes.map(u64::from),
            objects: Objects::new(options),
            limit,
            counts: Counts::default(),
        }
    }

    fn request(&mut self, record: &[u8; RECORD_BYTES]) -> Result<Option<Request>, String> {
        let bytes4 = |at: usize| u32::from_le_bytes(std::array::from_fn(|i| record[at + i]));
        let bytes8 = |at: usize| u64::from_le_bytes(std::array::from_fn(|i| record[at + i]));
        let (seconds, object, size, next) = (bytes4(0), bytes8(4), bytes4(12), bytes8(16) as i64);
        if next < NEXT_UNKNOWN {
            return Err(format!("next access {next} is negative; is this an oracleGeneral trace?"));
        }
        let (first_page, pages, weight) = match self.block_bytes {
            None => self.objects.pages(numbered(object), size_of_32_bits(size))?,
            Some(unit) => {
                let outside = || format!("block {object} lies beyond 2^64 bytes");
                let offset = object.checked_mul(unit).ok_or_else(outside)?;
                let size = u64::from(size);
                let (first_page, pages) = pages_touched(offset, size, self.limit)?;
                if pages == 0 {
                    self.counts.add(Doubt::EmptyRequests);
                }
                (page(first_page)?, pages, Weight::range(offset, size))
            }
        };
        let time = Some(u64::from(seconds) * SECOND_NS);
        Ok((pages > 0).then_some(Request { first_page, pages, kind: self.kind, write: false, time, weight, repeat: 1 }))
    }
}

impl Requests for OracleGeneral {
    fn next(&mut self, input: &mut Input) -> Result<Option<Request>, TraceError> {
        while let Some(record) = record::<RECORD_BYTES>(input)? {
            let request = self.request(&record).map_err(|reason| {
                let place = Place::Offset(input.offset() - RECORD_BYTES as u64);
                TraceError::malformed(input.path(), place, reason)
            })?;
            if request.is_some() {
                return Ok(request);
            }
        }
        Ok(None)
    }

    fn details(&self) -> Details {
        let what = match self.block_bytes {
            None => ("objects", self.objects.described()),
            Some(unit) => block_detail(unit),
        };
        vec![what, kind_detail(self.kind, self.kind_asked)]
    }

    fn objects(&self) -> Option<ObjectPages> {
        self.block_bytes.is_none().then(|| self.objects.pages_of_all())
    }

    fn says_sizes(&self) -> bool {
        true
    }

    fn remarks(&self) -> Vec<Remark> {
        self.counts.remarks().into_iter().chain(self.objects.counts().remarks()).collect()
    }
}

/// Consumes the next record of `N` bytes; `None` at the end of the data.
pub(crate) fn record<const N: usize>(input: &mut Input) -> Result<Option<[u8; N]>, TraceError> {
    let offset = input.offset();
    let available = input.fill(N)?;
    let Some(record) = available.first_chunk::<N>().copied() else {
        if available.is_empty() {
            return Ok(None);
        }
        let reason = format!("truncated: {} bytes are left of a record of {N}", available.len());
        return Err(TraceError::malformed(input.path(), Place::Offset(offset), reason));
    };
    input.consume(N);
    Ok(Some(record))
}
