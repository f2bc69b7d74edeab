//! Files as programs hold them: with the name by which they were opened, which errors say.
//!
//! Cost: a look into a table of handles for each call.

use std::ops::Deref;
use std::path::PathBuf;
use std::sync::Arc;

use refault::cache::CachedFile;

use crate::cache::refault_file;
use crate::handles::Table;
use crate::status::{Failure, guarded, refault_status};

pub(crate) static FILES: Table<OpenFile> = Table::new(2, "file");

/// A file behind a page cache.
pub(crate) struct OpenFile {
    file: CachedFile,
    path: PathBuf,
}

impl OpenFile {
    pub(crate) fn new(file: CachedFile, path: PathBuf) -> OpenFile {
        OpenFile { file, path }
    }
}

impl Deref for OpenFile {
    type Target = CachedFile;

    fn deref(&self) -> &CachedFile {
        &self.file
    }
}

/// Runs the body of a call on a file. What the system refused is told with the file's name.
pub(crate) fn on_file(file: refault_file, body: impl FnOnce(Arc<OpenFile>) -> Result<(), Failure>) -> refault_status {
    guarded(|| {
        let file = FILES.find(file)?;
        body(Arc::clone(&file)).map_err(|failure| failure.on(&file.path))
    })
}
