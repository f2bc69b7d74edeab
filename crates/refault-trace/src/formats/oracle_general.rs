//! libCacheSim's `oracleGeneral`: packed little-endian records of 24 bytes: u32 time in seconds, u64 object, u32 size,
//! i64 number of the next access to the object (-1 none; not used here).
//!
//! By default an object is a page, whatever its size. With a unit of block numbers, objects are blocks, and the bytes
//! from there on, as many as the size says, become the 4 KiB pages they touch. Object numbers beyond 56 bits (hashes)
//! are folded into 56: two of n objects fall together with a probability of about n²/2^57.

use super::numbers::{page, pages_touched};
use super::request::{Request, Requests};
use crate::error::Place;
use crate::input::Input;
use crate::reader::Options;
use crate::{Entry, Kind, TraceError};

const RECORD_BYTES: usize = 24;
const SECOND_NS: u64 = 1_000_000_000;
/// The largest mark that is not a number of an access.
const NEXT_UNKNOWN: i64 = -2;

pub(crate) struct OracleGeneral {
    kind: Kind,
    block_bytes: Option<u64>,
    limit: u64,
}

impl OracleGeneral {
    pub(crate) fn new(options: &Options) -> OracleGeneral {
        OracleGeneral {
            kind: options.kind.unwrap_or(Kind::Fd),
            block_bytes: options.block_bytes.map(u64::from),
            limit: options.limits.request_bytes,
        }
    }

    fn request(&self, record: &[u8; RECORD_BYTES]) -> Result<Request, String> {
        let bytes4 = |at: usize| u32::from_le_bytes(std::array::from_fn(|i| record[at + i]));
        let bytes8 = |at: usize| u64::from_le_bytes(std::array::from_fn(|i| record[at + i]));
        let (seconds, object, size, next) = (bytes4(0), bytes8(4), bytes4(12), bytes8(16) as i64);
        if next < NEXT_UNKNOWN {
            return Err(format!("next access {next} is negative; is this an oracleGeneral trace?"));
        }
        let time = Some(u64::from(seconds) * SECOND_NS);
        let (first_page, pages) = match self.block_bytes {
            None => (fold(object), 1),
            Some(unit) => {
                let outside = || format!("block {object} lies beyond 2^64 bytes");
                let offset = object.checked_mul(unit).ok_or_else(outside)?;
                pages_touched(offset, u64::from(size), self.limit)?
            }
        };
        page(first_page)?;
        Ok(Request { first_page, pages, kind: self.kind, write: false, time })
    }
}

fn fold(object: u64) -> u64 {
    if object <= Entry::MAX_PAGE {
        return object;
    }
    // The top bits of a product with an odd number depend on all bits of the other factor.
    object.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> (u64::BITS - 56)
}

impl Requests for OracleGeneral {
    fn next(&mut self, input: &mut Input) -> Result<Option<Request>, TraceError> {
        let offset = input.offset();
        let available = input.fill(RECORD_BYTES)?;
        let Some(record) = available.first_chunk::<RECORD_BYTES>() else {
            if available.is_empty() {
                return Ok(None);
            }
            let reason = format!("truncated: {} bytes are left of a record of {RECORD_BYTES}", available.len());
            return Err(TraceError::malformed(input.path(), Place::Offset(offset), reason));
        };
        let request = self.request(record);
        let request = request.map_err(|reason| TraceError::malformed(input.path(), Place::Offset(offset), reason))?;
        input.consume(RECORD_BYTES);
        Ok(Some(request))
    }
}
