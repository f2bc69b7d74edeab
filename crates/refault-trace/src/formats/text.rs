//! One page number per line, decimal or `0x` hexadecimal. Empty lines and lines that start with `#` are skipped.

use super::numbers::{number, page};
use super::request::{LineFormat, Request, Weight, kind_detail};
use crate::Kind;
use crate::reader::{Details, Options};
use crate::remark::Remark;

pub(crate) struct Text {
    kind: Kind,
    kind_asked: bool,
}

impl Text {
    pub(crate) fn new(options: &Options) -> Text {
        Text { kind: options.kind.unwrap_or(Kind::Anon), kind_asked: options.kind.is_some() }
    }
}

impl LineFormat for Text {
    fn parse(&mut self, line: &[u8]) -> Result<Option<Request>, String> {
        let line = line.trim_ascii();
        if line.is_empty() || line.starts_with(b"#") {
            return Ok(None);
        }
        let first_page = page(number(line, "page")?)?;
        Ok(Some(Request {
            first_page,
            pages: 1,
            kind: self.kind,
            write: false,
            time: None,
            weight: Weight::Unknown,
            repeat: 1,
        }))
    }

    fn details(&self) -> Details {
        vec![kind_detail(self.kind, self.kind_asked)]
    }

    fn remarks(&self) -> Vec<Remark> {
        Vec::new()
    }
}
