//! What is known of ranges of pages: the file they come from, and how they will be accessed.
//!
//! Most pagers have few or no such ranges, so a fault looks at one counter and goes on. Cost otherwise: one binary
//! search.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::RwLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use refault_core::PageId;
use refault_store::{PAGE_SIZE, Page, StoreError};

use crate::region::Hint;

struct Vma {
    first: PageId,
    end: PageId,
    hint: Hint,
    file: Option<File>,
}

#[derive(Default)]
pub(crate) struct Ranges {
    notes: RwLock<Vec<Vma>>,
    count: AtomicUsize,
}

impl Ranges {
    /// Notes a file behind a run of pages: page `first` is the file's first.
    pub(crate) fn set_file(&self, first: PageId, pages: u32, file: File) {
        self.insert(Vma { first, end: first + pages, hint: Hint::Normal, file: Some(file) });
    }

    fn insert(&self, note: Vma) {
        let mut notes = self.notes.write().expect("invariant: nothing panics under this lock");
        let at = notes.partition_point(|other| other.first < note.first);
        notes.insert(at, note);
        self.count.store(notes.len(), Ordering::Release);
    }

    /// Notes how a run of pages will be accessed. A part of a noted range changes the whole.
    pub(crate) fn set_hint(&self, first: PageId, pages: u32, hint: Hint) {
        {
            let mut notes = self.notes.write().expect("invariant: nothing panics under this lock");
            if let Some(note) = notes.iter_mut().find(|note| note.first <= first && first < note.end) {
                note.hint = hint;
                return;
            }
        }
        if hint != Hint::Normal {
            self.insert(Vma { first, end: first + pages, hint, file: None });
        }
    }

    /// Forgets what lies inside a run of pages.
    pub(crate) fn forget(&self, first: PageId, pages: u32) {
        if self.count.load(Ordering::Acquire) == 0 {
            return;
        }
        let mut notes = self.notes.write().expect("invariant: nothing panics under this lock");
        notes.retain(|note| note.first < first || note.end > first + pages);
        self.count.store(notes.len(), Ordering::Release);
    }

    fn with<T>(&self, page: PageId, look: impl FnOnce(&Vma) -> Option<T>) -> Option<T> {
        if self.count.load(Ordering::Acquire) == 0 {
            return None;
        }
        let notes = self.notes.read().expect("invariant: nothing panics under this lock");
        let at = notes.partition_point(|note| note.first <= page).checked_sub(1)?;
        let note = &notes[at];
        if page < note.end { look(note) } else { None }
    }

    /// How the page will be accessed.
    pub(crate) fn hint(&self, page: PageId) -> Hint {
        self.with(page, |note| Some(note.hint)).unwrap_or(Hint::Normal)
    }

    /// Whether a file lies behind the page.
    pub(crate) fn has_file(&self, page: PageId) -> bool {
        self.with(page, |note| note.file.as_ref().map(|_| ())).is_some()
    }

    /// Reads a page from its file; `None` if it has none. What lies after the end of the file in its last page is
    /// zeros; a page that lies wholly after it was there once, for a region is as long as its file was.
    pub(crate) fn read(&self, page: PageId, into: &mut Page) -> Option<Result<(), StoreError>> {
        self.with(page, |note| {
            let file = note.file.as_ref()?;
            let offset = u64::from(page - note.first) * PAGE_SIZE as u64;
            let mut done = 0;
            while done < PAGE_SIZE {
                match file.read_at(&mut into.0[done..], offset + done as u64) {
                    Ok(0) if done == 0 => return Some(Err(StoreError::Shortened(offset))),
                    Ok(0) => break,
                    Ok(read) => done += read,
                    Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                    Err(error) => {
                        let errno = error.raw_os_error().unwrap_or(libc::EIO);
                        return Some(Err(StoreError::Source { offset, errno }));
                    }
                }
            }
            into.0[done..].fill(0);
            Some(Ok(()))
        })
    }
}
