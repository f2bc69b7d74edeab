//! Pages that stay when their file is closed, and the descriptor that does not.
//!
//! Invariant: a handle that only keeps pages reads nothing by itself. Cost: that of a handle; a file that is opened
//! again is asked whether it has changed.

use crate::file::{CachedFile, PageCache};
use crate::io::direct::{Rights, Spare};

/// Pages that stay in the cache when their file is closed; made by [`CachedFile::keep_pages`].
pub struct KeptPages(#[expect(dead_code, reason = "what counts is when it is dropped")] CachedFile);

impl CachedFile {
    /// Has the file's pages stay in the cache when its last handle is closed, as long as the value lives: who opens the
    /// file again finds them, unless another program has changed it. No descriptor is open meanwhile, unless something
    /// that was written to the file is not durable. So a file that is removed gives its space back. None of what was
    /// attached ([`PageCache::attach`]), and in a child of the process that opened it.
    #[must_use = "they stay as long as this lives"]
    pub fn keep_pages(&self) -> Option<KeptPages> {
        let key = self.key.filter(|_| self.origin.is_here())?;
        self.shared.known.keep(key);
        let mut kept =
            PageCache(self.shared.clone()).handle(self.opened.clone(), Rights::Read, Some(key), Spare::default());
        kept.keeps = true;
        Some(KeptPages(kept))
    }
}
