//! One key of an object per line, as it stands there. Empty lines are skipped.

use super::object::{Objects, named};
use super::request::{LineFormat, Request, kind_detail};
use crate::Kind;
use crate::reader::{Details, ObjectPages, ObjectsAs, Options};
use crate::remark::Remark;

pub(crate) struct Keys {
    kind: Kind,
    kind_asked: bool,
    objects: Objects,
}

impl Keys {
    pub(crate) fn new(options: &Options) -> Keys {
        let objects = Objects::new(&Options { objects: ObjectsAs::OnePageEach, ..options.clone() });
        Keys { kind: options.kind.unwrap_or(Kind::Fd), kind_asked: options.kind.is_some(), objects }
    }
}

impl LineFormat for Keys {
    fn parse(&mut self, line: &[u8]) -> Result<Option<Request>, String> {
        if line.is_empty() {
            return Ok(None);
        }
        let (first_page, pages, weight) = self.objects.pages(named(line), None)?;
        Ok(Some(Request { first_page, pages, kind: self.kind, write: false, time: None, weight, repeat: 1 }))
    }

    fn details(&self) -> Details {
        vec![("objects", self.objects.described()), kind_detail(self.kind, self.kind_asked)]
    }

    fn remarks(&self) -> Vec<Remark> {
        Vec::new()
    }

    fn objects(&self) -> Option<ObjectPages> {
        Some(self.objects.pages_of_all())
    }
}
