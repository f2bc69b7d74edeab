//! The block traces published with ARC (Megiddo and Modha, FAST 2003): four numbers per line, the first block, how
//! many, one that is ignored, and the number of the request. Blocks have 512 bytes.
//!
//! By default each block is a page of its own, as in the published results; with a unit of 512 bytes a request becomes
//! the 4 KiB pages it touches.

use super::PAGE_BYTES;
use super::numbers::{number, page, pages_touched, words};
use super::request::{LineFormat, Request, Weight, kind_detail};
use crate::Kind;
use crate::reader::{Details, Options};
use crate::remark::{Counts, Doubt, Remark};

pub(crate) struct Lis {
    kind: Kind,
    kind_asked: bool,
    block_bytes: u64,
    limit: u64,
    counts: Counts,
}

/// Whether the whole lines of a text's beginning are of this format: of four numbers, the third is always 0 and the
/// fourth does not fall.
pub(crate) fn are_lines<'a>(lines: impl Iterator<Item = &'a [u8]>) -> bool {
    let (mut last, mut any) = (0, false);
    for line in lines {
        let fields: Vec<Option<u64>> = words(line).map(|field| number(field, "").ok()).collect();
        let [Some(_), Some(_), Some(0), Some(request)] = fields[..] else { return false };
        if request < last {
            return false;
        }
        (last, any) = (request, true);
    }
    any
}

impl Lis {
    pub(crate) fn new(options: &Options) -> Lis {
        Lis {
            kind: options.kind.unwrap_or(Kind::Fd),
            kind_asked: options.kind.is_some(),
            block_bytes: options.block_bytes.map_or(PAGE_BYTES, u64::from),
            limit: options.limits.request_bytes,
            counts: Counts::default(),
        }
    }
}

impl LineFormat for Lis {
    fn parse(&mut self, line: &[u8]) -> Result<Option<Request>, String> {
        let mut fields = words(line).collect::<Vec<_>>().into_iter();
        let Some(start) = fields.next() else { return Ok(None) };
        let start = number(start, "first block")?;
        let count = number(fields.next().unwrap_or_default(), "number of blocks")?;
        if fields.clone().count() > 2 {
            return Err("more than four numbers; a line is: first block, count, ignored, request number".to_owned());
        }
        for (index, field) in fields.enumerate() {
            if number(field, "third or fourth number")? != 0 && index == 0 {
                self.counts.add(Doubt::IgnoredNumbers);
            }
        }
        let outside = || format!("{count} blocks from {start} end beyond 2^64 bytes");
        let offset = start.checked_mul(self.block_bytes).ok_or_else(outside)?;
        let size = count.checked_mul(self.block_bytes).ok_or_else(outside)?;
        let (first_page, pages) = pages_touched(offset, size, self.limit)?;
        page(first_page)?;
        if pages == 0 {
            self.counts.add(Doubt::EmptyRequests);
        }
        let (kind, weight) = (self.kind, Weight::range(offset, size));
        Ok((pages > 0).then_some(Request { first_page, pages, kind, write: false, time: None, weight, repeat: 1 }))
    }

    fn details(&self) -> Details {
        vec![block_detail(self.block_bytes), kind_detail(self.kind, self.kind_asked)]
    }

    fn remarks(&self) -> Vec<Remark> {
        self.counts.remarks()
    }
}

/// The detail that says what block numbers count.
pub(crate) fn block_detail(block_bytes: u64) -> (&'static str, String) {
    let text = match block_bytes {
        PAGE_BYTES => "a page each".to_owned(),
        bytes => format!("of {bytes} bytes, folded into pages of {PAGE_BYTES}"),
    };
    ("blocks", text)
}
