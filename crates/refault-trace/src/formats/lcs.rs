//! libCacheSim's LCS: a header with two marks, the version of the records, and packed little-endian records.
//!
//! Every version has u32 time in seconds, u64 object and its size. A size has 32 bits in versions 1 and 2, and 64 from
//! 3 on. From 2 on come u8 operation and u24 tenant, from 3 on u32 time to live. Then comes i64 number of the next
//! access, which is not used here. Versions 4 to 8 end in 1, 2, 4, 8 or 16 features of 32 bits. The header has 8192
//! bytes, or 1024 in older files.
//!
//! Objects become pages as [`super::object`] says. Operations are libCacheSim's: 0 says none.

use super::object::{Objects, numbered, size_of_32_bits};
use super::request::{Request, Requests, kind_detail};
use crate::error::Place;
use crate::input::Input;
use crate::reader::{Details, ObjectPages, Options};
use crate::remark::{Counts, Doubt, Remark};
use crate::{Kind, TraceError};

/// What the header begins and ends with.
const MARK: u64 = 0x1234_5678_9abc_def0;
const HEADER_BYTES: [usize; 2] = [8192, 1024];
const SECOND_NS: u64 = 1_000_000_000;
/// Bytes of a record without features, by version from 1; later ones have those of the third.
const RECORD_BYTES: [usize; 3] = [24, 28, 36];
/// Features behind a record, by version from 1.
const FEATURES: [usize; 8] = [0, 0, 0, 1, 2, 4, 8, 16];
const FEATURE_BYTES: usize = 4;

/// libCacheSim's numbers of operations that write, and of its deletion.
const WRITES: [u8; 10] = [3, 4, 5, 6, 7, 8, 10, 11, 13, 14];
const DELETE: u8 = 9;
/// Those that read: none said, get, gets, read.
const READS: [u8; 4] = [0, 1, 2, 12];

/// Whether a file begins with this format's mark.
pub(crate) fn is_head(head: &[u8]) -> bool {
    head.starts_with(&MARK.to_le_bytes())
}

pub(crate) struct Lcs {
    kind: Kind,
    kind_asked: bool,
    /// Of the records, once the header is read.
    version: Option<usize>,
    objects: Objects,
    /// Of the first record.
    tenant: Option<[u8; 3]>,
    counts: Counts,
}

impl Lcs {
    pub(crate) fn new(options: &Options) -> Lcs {
        Lcs {
            kind: options.kind.unwrap_or(Kind::Fd),
            kind_asked: options.kind.is_some(),
            version: None,
            objects: Objects::new(options),
            tenant: None,
            counts: Counts::default(),
        }
    }

    /// Goes past the header, and says which version the records have.
    fn read_header(input: &mut Input) -> Result<usize, TraceError> {
        let wrong = |input: &Input, reason: String| TraceError::malformed(input.path(), Place::Offset(0), reason);
        let head = input.fill(HEADER_BYTES[0])?;
        let ends = |bytes: &&usize| head.get(**bytes - 8..**bytes) == Some(&MARK.to_le_bytes()[..]);
        let header = HEADER_BYTES.iter().filter(|_| is_head(head)).find(ends).copied();
        let version = head.get(8..16).map_or(0, |version| u64::from_le_bytes(std::array::from_fn(|at| version[at])));
        let Some(header) = header else {
            return Err(wrong(
                input,
                "the header of an LCS trace begins and ends with its mark; this one does not".into(),
            ));
        };
        let known = usize::try_from(version).ok().filter(|version| (1..=FEATURES.len()).contains(version));
        let known = known.ok_or_else(|| wrong(input, format!("LCS version {version} is not known; 1 to 8 are")))?;
        input.consume(header);
        Ok(known)
    }

    fn request(&mut self, version: usize, record: &[u8]) -> Result<Option<Request>, String> {
        let u32_at = |at: usize| u32::from_le_bytes(std::array::from_fn(|i| record[at + i]));
        let u64_at = |at: usize| u64::from_le_bytes(std::array::from_fn(|i| record[at + i]));
        let (seconds, object) = (u32_at(0), u64_at(4));
        if is_head(record) {
            return Err("here is the header of another LCS trace: part the file here, as by `split -b`, and read both"
                .to_owned());
        }
        // Operation and tenant are one number of 32 bits.
        let (size, [operation, tenant @ ..]) = match version {
            1 => (size_of_32_bits(u32_at(12)), [0; 4]),
            2 => (size_of_32_bits(u32_at(12)), u32_at(16).to_le_bytes()),
            _ => (Some(u64_at(12)).filter(|size| *size as i64 >= 0), u32_at(20).to_le_bytes()),
        };
        if *self.tenant.get_or_insert(tenant) != tenant {
            self.counts.add(Doubt::OtherTenants);
        }
        // Less than 0 is none.
        if version >= 3 && u32_at(24) as i32 > 0 {
            self.counts.add(Doubt::TimesToLive);
        }
        if operation == DELETE {
            self.counts.add(Doubt::Deletions);
            return Ok(None);
        }
        if !READS.contains(&operation) && !WRITES.contains(&operation) {
            self.counts.add(Doubt::UnknownOperations);
        }
        let (first_page, pages, weight) = self.objects.pages(numbered(object), size)?;
        let (time, write) = (Some(u64::from(seconds) * SECOND_NS), WRITES.contains(&operation));
        Ok((pages > 0).then_some(Request { first_page, pages, kind: self.kind, write, time, weight, repeat: 1 }))
    }
}

impl Requests for Lcs {
    fn next(&mut self, input: &mut Input) -> Result<Option<Request>, TraceError> {
        let version = match self.version {
            Some(version) => version,
            None => *self.version.insert(Lcs::read_header(input)?),
        };
        let bytes = RECORD_BYTES[version.min(RECORD_BYTES.len()) - 1] + FEATURES[version - 1] * FEATURE_BYTES;
        loop {
            let offset = input.offset();
            let available = input.fill(bytes)?;
            let left = available.len();
            if left == 0 {
                return Ok(None);
            }
            let Some(record) = available.get(..bytes).map(<[u8]>::to_vec) else {
                let reason = format!("truncated: {left} bytes are left of a record of {bytes}");
                return Err(TraceError::malformed(input.path(), Place::Offset(offset), reason));
            };
            input.consume(bytes);
            let request = self.request(version, &record);
            let request =
                request.map_err(|reason| TraceError::malformed(input.path(), Place::Offset(offset), reason))?;
            if request.is_some() {
                return Ok(request);
            }
        }
    }

    fn details(&self) -> Details {
        let version = self.version.map(|version| ("version", version.to_string()));
        let known = [("objects", self.objects.described()), kind_detail(self.kind, self.kind_asked)];
        version.into_iter().chain(known).collect()
    }

    fn says_sizes(&self) -> bool {
        true
    }

    fn remarks(&self) -> Vec<Remark> {
        self.counts.remarks().into_iter().chain(self.objects.counts().remarks()).collect()
    }

    fn objects(&self) -> Option<ObjectPages> {
        Some(self.objects.pages_of_all())
    }
}
