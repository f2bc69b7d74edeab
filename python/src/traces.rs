//! Traces: files, workloads, and arrays of Python without a copy.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use numpy::{PyArray1, PyArrayMethods, PyUntypedArrayMethods};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use refault::lab::sweep::layout_and_reading_of;
use refault::trace::{
    BLOCK_ENTRIES, CsvColumns, Entry, Format, Kind, ObjectsAs, OpenTrace, Options, Part, Reading, Source, TraceError,
    TraceReader,
};

use crate::decoded::{Decoded, Shared};
use crate::errors::trace_error;
use crate::work;

/// Where accesses come from. Can be read any number of times.
#[pyclass(frozen, module = "refault._refault")]
pub struct Trace {
    pub source: Source,
    /// Its contents, if they lie decoded in memory.
    decoded: Option<Arc<Decoded>>,
    heard: Mutex<Heard>,
}

/// What passes over a trace have said of it.
#[derive(Clone, Default)]
struct Heard {
    /// What was left out or assumed, each once.
    remarks: Vec<String>,
    /// How many of them were handed out.
    told: usize,
    /// Whether a pass came to the end.
    is_complete: bool,
}

impl Trace {
    fn of(source: Source) -> Trace {
        Trace { source, decoded: None, heard: Mutex::default() }
    }

    fn of_decoded(decoded: Decoded) -> Trace {
        let decoded = Arc::new(decoded);
        Trace {
            source: Source::Custom(Arc::new(Shared(decoded.clone()))),
            decoded: Some(decoded),
            heard: Mutex::default(),
        }
    }

    /// Keeps what a pass to the end had to say.
    pub fn heard(&self, reading: &Reading) {
        let mut heard = self.heard.lock().unwrap_or_else(PoisonError::into_inner);
        heard.is_complete = true;
        // Sizes that there are count, unless it was asked otherwise.
        let without_sizes = reading.objects.is_some_and(|objects| objects.bytes.is_none());
        let note = reading.note().filter(|_| without_sizes && reading.counts_objects());
        for remark in reading.remarks.iter().map(ToString::to_string).chain(note) {
            if !heard.remarks.contains(&remark) {
                heard.remarks.push(remark);
            }
        }
    }

    fn all_heard(&self) -> Heard {
        self.heard.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

#[pymethods]
impl Trace {
    /// A file in any format that the command reads.
    #[staticmethod]
    #[pyo3(signature = (
        path, format=None, kind=None, name=None, block_bytes=None, objects_have_sizes=None, collapse=false,
        columns=Vec::new(), skip_size_zero=false, file_order=false, strict=false, skip_instructions=false
    ))]
    #[allow(clippy::too_many_arguments)]
    fn from_file(
        path: PathBuf,
        format: Option<&str>,
        kind: Option<&str>,
        name: Option<String>,
        block_bytes: Option<u32>,
        objects_have_sizes: Option<bool>,
        collapse: bool,
        columns: Vec<(String, String)>,
        skip_size_zero: bool,
        file_order: bool,
        strict: bool,
        skip_instructions: bool,
    ) -> PyResult<Trace> {
        let format = format
            .map(|name| {
                Format::from_name(name).ok_or_else(|| {
                    PyValueError::new_err(format!("unknown format: '{name}': see 'refault trace --help'"))
                })
            })
            .transpose()?;
        let kind = kind.map(kind_of).transpose()?;
        if block_bytes.is_some_and(|bytes| !(1..=4096).contains(&bytes)) {
            return Err(PyValueError::new_err("block_bytes is from 1 to 4096"));
        }
        let objects = match objects_have_sizes {
            Some(true) => ObjectsAs::Sized,
            Some(false) => ObjectsAs::OnePageEach,
            None => ObjectsAs::SizedIfKnown,
        };
        let mut named = CsvColumns::default();
        for (field, column) in &columns {
            named.set(field, column).map_err(PyValueError::new_err)?;
        }
        let options = Options {
            format,
            kind,
            name,
            block_bytes,
            objects,
            collapse,
            columns: named,
            skip_size_zero,
            file_order,
            strict,
            skip_instructions,
            ..Options::default()
        };
        let source = Source::file(path, options);
        source.open().map_err(trace_error)?; // A wrong path or format is said here, not in the middle of the work.
        Ok(Trace::of(source))
    }

    /// What [`Trace::to_bytes`] made.
    #[staticmethod]
    fn from_bytes(py: Python<'_>, name: String, bytes: &[u8]) -> PyResult<Trace> {
        py.detach(|| Decoded::from_bytes(name, bytes)).map(Trace::of_decoded)
    }

    /// A generated workload: `zipf:theta=1,pages=1000,accesses=20000`.
    #[staticmethod]
    fn workload(spec: &str) -> PyResult<Trace> {
        let spec = spec.parse().map_err(|error| PyValueError::new_err(format!("'{spec}': {error}")))?;
        Ok(Trace::of(Source::workload(spec)))
    }

    /// Page numbers in a contiguous array of 64-bit unsigned integers, which must not change while the trace is used,
    /// and whether each access writes.
    #[staticmethod]
    #[pyo3(signature = (pages, writes, kind, name))]
    fn from_array(
        pages: &Bound<'_, PyArray1<u64>>,
        writes: Option<&Bound<'_, PyArray1<bool>>>,
        kind: &str,
        name: String,
    ) -> PyResult<Trace> {
        let kind = kind_of(kind)?;
        if !pages.is_contiguous() || writes.is_some_and(|writes| !writes.is_contiguous()) {
            return Err(PyValueError::new_err("arrays of accesses must be contiguous"));
        }
        if pages.is_empty() {
            return Err(PyValueError::new_err(format!("{name}: is empty; a trace has at least one access")));
        }
        if let Some(writes) = writes
            && writes.len() != pages.len()
        {
            let (pages, writes) = (pages.len(), writes.len());
            return Err(PyValueError::new_err(format!("{pages} pages, but {writes} writes: there must be as many")));
        }
        let array = Array {
            pages: pages.data(),
            writes: writes.map(|writes| writes.data().cast::<u8>().cast_const()),
            accesses: pages.len(),
            kind,
            name,
            _owners: (pages.clone().unbind().into_any(), writes.map(|writes| writes.clone().unbind().into_any())),
        };
        Ok(Trace::of(Source::Custom(Arc::new(array))))
    }

    /// A part: at most `limit` accesses, after the first `skip`.
    #[pyo3(signature = (skip=0, limit=None))]
    fn part(&self, skip: u64, limit: Option<u64>) -> Trace {
        Trace::of(self.source.clone().part(Part { skip, limit, ..Part::default() }))
    }

    /// The same trace, read to its end and kept in memory.
    fn decode(&self, py: Python<'_>) -> PyResult<Trace> {
        let source = self.source.clone();
        let (decoded, reading) = work::run(py, None, move |progress| Decoded::read(&source, progress))?;
        self.heard(&reading);
        Ok(Trace { heard: Mutex::new(self.all_heard()), ..Trace::of_decoded(decoded) })
    }

    /// What was left out or assumed, a sentence each. Reads the whole trace if nothing has done so yet.
    fn remarks(&self, py: Python<'_>) -> PyResult<Vec<String>> {
        if !self.all_heard().is_complete {
            self.counts(py)?;
        }
        Ok(self.all_heard().remarks)
    }

    /// Those remarks of the passes so far that this has not handed out before.
    fn new_remarks(&self) -> Vec<String> {
        let mut heard = self.heard.lock().unwrap_or_else(PoisonError::into_inner);
        let new = heard.remarks[heard.told..].to_vec();
        heard.told = heard.remarks.len();
        new
    }

    /// Adds what another process heard of the same trace.
    fn add_remarks(&self, remarks: Vec<String>) {
        let mut heard = self.heard.lock().unwrap_or_else(PoisonError::into_inner);
        heard.is_complete = true;
        heard.told = remarks.len();
        heard.remarks = remarks;
    }

    /// Bytes of memory that the decoded trace takes; 0 if it is not decoded.
    fn memory_bytes(&self) -> usize {
        self.decoded.as_ref().map_or(0, |decoded| decoded.memory_bytes())
    }

    /// All of a decoded trace, to be sent to another process.
    fn to_bytes<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        match &self.decoded {
            Some(decoded) => decoded.to_bytes(py),
            None => Err(PyValueError::new_err(format!("{}: is not decoded", self.source.name()))),
        }
    }

    /// What it is called in tables.
    #[getter]
    fn name(&self) -> String {
        self.source.name()
    }

    /// Accesses, distinct pages, distinct anonymous pages and writes. Reads the whole trace.
    fn counts(&self, py: Python<'_>) -> PyResult<(u64, u64, u64, u64)> {
        let source = self.source.clone();
        let (counts, reading) = work::run(py, None, move |_| {
            let (layout, reading) = layout_and_reading_of(&source)?;
            Ok(((layout.accesses(), layout.distinct_pages(), layout.distinct_anon(), layout.writes()), reading))
        })?;
        self.heard(&reading);
        Ok(counts)
    }

    /// All accesses: page numbers, whether each writes, and the kind of each (0 anon, 1 fd, 2 mapped).
    #[allow(clippy::type_complexity)]
    fn read<'py>(
        &self,
        py: Python<'py>,
    ) -> PyResult<(Bound<'py, PyArray1<u64>>, Bound<'py, PyArray1<bool>>, Bound<'py, PyArray1<u8>>)> {
        let source = self.source.clone();
        let (pages, writes, kinds, reading) = work::run(py, None, move |progress| {
            let mut reader = source.open()?;
            let (mut pages, mut writes, mut kinds) = (Vec::new(), Vec::new(), Vec::new());
            let mut buffer = Vec::new();
            loop {
                let block = reader.next_block(&mut buffer)?;
                if block.is_empty() || progress.is_cancelled() {
                    return Ok((pages, writes, kinds, Reading::of(&*reader)));
                }
                pages.extend(block.iter().map(|entry| entry.page()));
                writes.extend(block.iter().map(|entry| entry.write()));
                kinds.extend(block.iter().map(|entry| entry.kind().map_or(0, |kind| kind as u8)));
            }
        })?;
        self.heard(&reading);
        Ok((PyArray1::from_vec(py, pages), PyArray1::from_vec(py, writes), PyArray1::from_vec(py, kinds)))
    }
}

/// The kind of a name.
pub fn kind_of(name: &str) -> PyResult<Kind> {
    Kind::from_name(name)
        .ok_or_else(|| PyValueError::new_err(format!("unknown kind: '{name}': choose from anon, fd, mapped")))
}

/// Page numbers that lie in an array of Python.
struct Array {
    pages: *const u64,
    /// Booleans of a byte each.
    writes: Option<*const u8>,
    accesses: usize,
    kind: Kind,
    name: String,
    /// Keep the memory alive. NumPy moves no memory of an array that another object refers to.
    _owners: (Py<PyAny>, Option<Py<PyAny>>),
}

impl std::fmt::Debug for Array {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Array").field("name", &self.name).field("accesses", &self.accesses).finish()
    }
}

// SAFETY: the pointers are only read, and what they point to lives as long as the owners; all else can be sent and
// shared. A program that writes to the array meanwhile gets wrong figures: every value that is read is checked or
// masked.
unsafe impl Send for Array {}
// SAFETY: as above.
unsafe impl Sync for Array {}

impl OpenTrace for Array {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn open(&self) -> Result<Box<dyn TraceReader>, TraceError> {
        // A caller that reads the source keeps it only through this reader, so the reader keeps the array too.
        let owners = Python::attach(|py| {
            (self._owners.0.clone_ref(py), self._owners.1.as_ref().map(|owner| owner.clone_ref(py)))
        });
        let array = Array { name: self.name.clone(), _owners: owners, ..*self };
        Ok(Box::new(ArrayReader { array, at: 0 }))
    }
}

struct ArrayReader {
    array: Array,
    at: usize,
}

impl TraceReader for ArrayReader {
    fn read_block(&mut self, out: &mut Vec<Entry>) -> Result<usize, TraceError> {
        let array = &self.array;
        let count = (array.accesses - self.at).min(BLOCK_ENTRIES);
        out.clear();
        for index in self.at..self.at + count {
            // SAFETY: index < accesses, the length of both arrays, which the owners keep alive.
            let page = unsafe { array.pages.add(index).read() };
            if page > Entry::MAX_PAGE {
                return Err(TraceError::Unsuitable {
                    file: PathBuf::from(&array.name),
                    reason: format!("access {index} is to page {page}; page numbers are below 2^56"),
                });
            }
            // SAFETY: as above; a byte is read, whatever it is.
            let write = array.writes.is_some_and(|writes| unsafe { writes.add(index).read() } != 0);
            out.push(Entry::new(page, array.kind, write));
        }
        self.at += count;
        Ok(count)
    }

    fn total(&self) -> Option<u64> {
        Some(self.array.accesses as u64)
    }
}
