//! What a reader did with a trace that its bytes do not say: left out, merged, reordered, assumed.
//!
//! Every reader counts such cases and hands them out with [`crate::TraceReader::remarks`] once the trace is read. A
//! command prints a line for each; with [`crate::Options::strict`] a pass ends with an error instead. Cost: a counter
//! for each kind.
//!
//! ```
//! use refault_trace::{Options, open_bytes};
//!
//! let mut reader = open_bytes("t.csv", b"page,op\n1,r\n2,delete\n".to_vec(), &Options::default())?;
//! reader.read_to_end()?;
//! assert_eq!(reader.remarks()[0].to_string(), "1 deletion is left out: it is no access");
//! # Ok::<(), refault_trace::TraceError>(())
//! ```

use std::fmt;

use serde_json::{Value, json};

use crate::reader::{ObjectPages, TraceReader};

/// What was done, of those that readers know.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(usize)]
pub enum Doubt {
    /// Nothing but the contents said the format.
    FormatByContents,
    /// A first line whose columns were given by number names columns.
    FirstLineIsHeader,
    /// Columns of a CSV file that nothing reads.
    UnreadColumns,
    /// No column says the operation.
    NoOperations,
    /// Operations are numbers.
    OperationNumbers,
    /// The unit of times was told by their magnitude.
    TimeUnit,
    /// Deletions.
    Deletions,
    /// Discards, flushes and other commands that neither read nor write.
    OtherCommands,
    /// Requests of no bytes for a range of bytes.
    EmptyRequests,
    /// Records of objects of no bytes, which count as accesses.
    EmptyObjects,
    /// Records of objects of no bytes, left out on request.
    EmptyObjectsLeftOut,
    /// Objects without a size where sizes count.
    UnsizedObjects,
    /// Accesses without a size in a trace that says sizes, where they count for figures of bytes alone.
    UnsizedAccesses,
    /// Accesses to an object with another size than before.
    ChangedSizes,
    /// Accesses with a time to live.
    TimesToLive,
    /// Requests that stood later in the file than their time says.
    Reordered,
    /// Requests whose times go back, kept in the file's order on request.
    TimesGoBack,
    /// Requests known by when they were issued, because nothing was recorded of their queueing.
    TakenAtIssue,
    /// Requests known by when they were completed only.
    TakenAtCompletion,
    /// Events of other stages of a request.
    NotAnEvent,
    /// Samples without an address.
    NoAddress,
    /// Samples at addresses of the kernel.
    KernelAddresses,
    /// Page faults on so few pages that the addresses may be of instructions.
    FewFaultedPages,
    /// Snapshots that damo made up to end a record.
    MadeUpSnapshots,
    /// Files that were opened, closed, waited for: lines without an access.
    NoTransfers,
    /// Lines with more fields than the first.
    ExtraFields,
    /// Lines that repeat the header.
    RepeatedHeaders,
    /// Records with a size and a count that say something else.
    UnequalCounts,
    /// Requests of a part of a block.
    PartsOfBlocks,
    /// Pages of a size that is more than a page's.
    SizesOfPages,
    /// Objects called by a number that is not written as others are.
    OddNumbers,
    /// Operations that have no meaning.
    UnknownOperations,
    /// Records of other tenants than the first.
    OtherTenants,
    /// Requests of devices of which the events that are taken were not recorded.
    OtherDevices,
    /// Lines whose number that is not read is not 0.
    IgnoredNumbers,
    /// Processes whose addresses fall together.
    SeveralProcesses,
    /// Records of damo behind the first in one file.
    RecordsBehindEachOther,
    /// Regions of other schemes of DAMON than a target's first.
    OtherSchemes,
    /// Regions that are known because schemes were applied to them.
    AppliedOnly,
    /// Regions that schemes were applied to, beside all regions.
    AppliedBesides,
    /// Requests that devices pass on to others of the trace.
    RemappedRequests,
    /// Lines with as many fields as others that begin as comments do.
    Comments,
    /// Commands whose keys are not known.
    UnknownCommands,
    /// A last line without an end.
    CutLine,
    /// A separator of columns that is one of several.
    Separator,
    /// An option that does nothing for a trace.
    IdleOption,
}

impl Doubt {
    /// All of them, in the order in which they are shown.
    pub const ALL: [Doubt; 46] = [
        Doubt::FormatByContents,
        Doubt::FirstLineIsHeader,
        Doubt::UnreadColumns,
        Doubt::NoOperations,
        Doubt::OperationNumbers,
        Doubt::TimeUnit,
        Doubt::Deletions,
        Doubt::OtherCommands,
        Doubt::EmptyRequests,
        Doubt::EmptyObjects,
        Doubt::EmptyObjectsLeftOut,
        Doubt::UnsizedObjects,
        Doubt::UnsizedAccesses,
        Doubt::ChangedSizes,
        Doubt::TimesToLive,
        Doubt::Reordered,
        Doubt::TimesGoBack,
        Doubt::TakenAtIssue,
        Doubt::TakenAtCompletion,
        Doubt::NotAnEvent,
        Doubt::NoAddress,
        Doubt::KernelAddresses,
        Doubt::FewFaultedPages,
        Doubt::MadeUpSnapshots,
        Doubt::NoTransfers,
        Doubt::ExtraFields,
        Doubt::RepeatedHeaders,
        Doubt::UnequalCounts,
        Doubt::PartsOfBlocks,
        Doubt::SizesOfPages,
        Doubt::OddNumbers,
        Doubt::UnknownOperations,
        Doubt::OtherTenants,
        Doubt::OtherDevices,
        Doubt::IgnoredNumbers,
        Doubt::SeveralProcesses,
        Doubt::RecordsBehindEachOther,
        Doubt::OtherSchemes,
        Doubt::AppliedOnly,
        Doubt::AppliedBesides,
        Doubt::RemappedRequests,
        Doubt::Comments,
        Doubt::UnknownCommands,
        Doubt::CutLine,
        Doubt::Separator,
        Doubt::IdleOption,
    ];

    /// The name in JSON, a contract with scripts.
    pub const fn code(self) -> &'static str {
        match self {
            Doubt::FormatByContents => "format_by_contents",
            Doubt::FirstLineIsHeader => "first_line_is_header",
            Doubt::UnreadColumns => "unread_columns",
            Doubt::NoOperations => "no_operations",
            Doubt::OperationNumbers => "operation_numbers",
            Doubt::TimeUnit => "time_unit",
            Doubt::Deletions => "deletions",
            Doubt::OtherCommands => "other_commands",
            Doubt::EmptyRequests => "empty_requests",
            Doubt::EmptyObjects => "empty_objects",
            Doubt::EmptyObjectsLeftOut => "empty_objects_left_out",
            Doubt::UnsizedObjects => "unsized_objects",
            Doubt::UnsizedAccesses => "unsized_accesses",
            Doubt::ChangedSizes => "changed_sizes",
            Doubt::TimesToLive => "times_to_live",
            Doubt::Reordered => "reordered",
            Doubt::TimesGoBack => "times_go_back",
            Doubt::TakenAtIssue => "taken_at_issue",
            Doubt::TakenAtCompletion => "taken_at_completion",
            Doubt::NotAnEvent => "not_an_event",
            Doubt::NoAddress => "no_address",
            Doubt::KernelAddresses => "kernel_addresses",
            Doubt::FewFaultedPages => "few_faulted_pages",
            Doubt::MadeUpSnapshots => "made_up_snapshots",
            Doubt::NoTransfers => "no_transfers",
            Doubt::ExtraFields => "extra_fields",
            Doubt::RepeatedHeaders => "repeated_headers",
            Doubt::UnequalCounts => "unequal_counts",
            Doubt::PartsOfBlocks => "parts_of_blocks",
            Doubt::SizesOfPages => "sizes_of_pages",
            Doubt::OddNumbers => "odd_numbers",
            Doubt::UnknownOperations => "unknown_operations",
            Doubt::OtherTenants => "other_tenants",
            Doubt::OtherDevices => "other_devices",
            Doubt::IgnoredNumbers => "ignored_numbers",
            Doubt::SeveralProcesses => "several_processes",
            Doubt::RecordsBehindEachOther => "records_behind_each_other",
            Doubt::OtherSchemes => "other_schemes",
            Doubt::AppliedOnly => "applied_only",
            Doubt::AppliedBesides => "applied_besides",
            Doubt::RemappedRequests => "remapped_requests",
            Doubt::Comments => "comments",
            Doubt::UnknownCommands => "unknown_commands",
            Doubt::CutLine => "cut_line",
            Doubt::Separator => "separator",
            Doubt::IdleOption => "idle_option",
        }
    }

    /// What is said of one case and of several, behind their number, and what to do. Empty where a remark has a text
    /// of its own.
    const fn words(self) -> (&'static str, &'static str) {
        match self {
            Doubt::FormatByContents
            | Doubt::FirstLineIsHeader
            | Doubt::UnreadColumns
            | Doubt::TimeUnit
            | Doubt::FewFaultedPages
            | Doubt::SeveralProcesses
            | Doubt::Separator
            | Doubt::IdleOption
            | Doubt::Reordered => ("", ""),
            Doubt::NoOperations => (
                "access is taken for a read, because no column says the operation: name it by --columns operation=NAME, \
                 or say that there is none by --columns operation=",
                "accesses are taken for reads, because no column says the operation: name it by --columns \
                 operation=NAME, or say that there is none by --columns operation=",
            ),
            Doubt::OperationNumbers => (
                "operation is a number: 0 is taken for a read and 1 for a write",
                "operations are numbers: 0 is taken for a read and 1 for a write",
            ),
            Doubt::Deletions => {
                ("deletion is left out: it is no access", "deletions are left out: they are no accesses")
            }
            Doubt::OtherCommands => (
                "command that neither reads nor writes is left out",
                "commands that neither read nor write are left out",
            ),
            Doubt::EmptyRequests => ("request of 0 bytes is left out", "requests of 0 bytes are left out"),
            Doubt::EmptyObjects => (
                "record of size 0 is taken for an access to its object; --skip-size-zero leaves such records out",
                "records of size 0 are taken for accesses to their objects; --skip-size-zero leaves such records out",
            ),
            Doubt::EmptyObjectsLeftOut => ("record of size 0 is left out", "records of size 0 are left out"),
            Doubt::UnsizedObjects => (
                "record says no size: its object is taken to be as large as before, or one page if that is not known",
                "records say no size: their objects are taken to be as large as before, or one page each if that is not known",
            ),
            Doubt::UnsizedAccesses => (
                "access says no size, and figures of bytes leave it out",
                "accesses say no size, and figures of bytes leave them out",
            ),
            Doubt::ChangedSizes => (
                "access finds its object with another size than before; an object that grew is written anew",
                "accesses find their object with another size than before; an object that grew is written anew",
            ),
            Doubt::TimesToLive => (
                "access has a time to live, which is not used: the object does not expire",
                "accesses have a time to live, which is not used: objects do not expire",
            ),
            Doubt::TimesGoBack => (
                "time goes back; the order is the file's, as --file-order says",
                "times go back; the order is the file's, as --file-order says",
            ),
            Doubt::TakenAtIssue => (
                "request is taken where it was issued (D), because none was recorded where it was queued (Q)",
                "requests are taken where they were issued (D), because none was recorded where it was queued (Q)",
            ),
            Doubt::TakenAtCompletion => (
                "request is taken where it was completed (C), because none was recorded where it was queued or issued",
                "requests are taken where they were completed (C), because none was recorded where it was queued or \
                 issued",
            ),
            Doubt::NotAnEvent => ("line that is no event is left out", "lines that are no events are left out"),
            Doubt::NoAddress => ("sample without an address is left out", "samples without an address are left out"),
            Doubt::KernelAddresses => (
                "sample has an address of the kernel: if that is an instruction's, record with `perf record -d` and \
                 print `addr`, not `ip`",
                "samples have addresses of the kernel: if those are instructions', record with `perf record -d` and \
                 print `addr`, not `ip`",
            ),
            Doubt::MadeUpSnapshots => (
                "snapshot that damo made up to end a record is left out",
                "snapshots that damo made up to end a record are left out",
            ),
            Doubt::NoTransfers => ("line moves no data and is left out", "lines move no data and are left out"),
            Doubt::ExtraFields => (
                "line has more fields than the first, which are not read: put a field that holds the separator in quotes",
                "lines have more fields than the first, which are not read: put fields that hold the separator in quotes",
            ),
            Doubt::RepeatedHeaders => {
                ("line repeats the header and is left out", "lines repeat the header and are left out")
            }
            Doubt::UnequalCounts => (
                "record has a size that is not its count of blocks: the size is taken",
                "records have a size that is not their count of blocks: the size is taken",
            ),
            Doubt::PartsOfBlocks => (
                "request has a size, taken for bytes, that is not a number of whole blocks: name the column by --columns count=NAME if it counts blocks",
                "requests have a size, taken for bytes, that is not a number of whole blocks: name the column by --columns count=NAME if it counts blocks",
            ),
            Doubt::SizesOfPages => (
                "page has a size of more than a page, of which memory counts one page: name the column by --columns object=NAME if it is an object",
                "pages have a size of more than a page, of which memory counts one page each: name the column by --columns object=NAME if they are objects",
            ),
            Doubt::OddNumbers => (
                "record has its object's number in hexadecimal, with zeros before it, a point or an exponent in it, unlike others: each spelling is an object of its own",
                "records have their object's number in hexadecimal, with zeros before it, a point or an exponent in it, unlike others: each spelling is an object of its own",
            ),
            Doubt::UnknownOperations => (
                "operation has a number that stands for none and is taken for a read",
                "operations have numbers that stand for none and are taken for reads",
            ),
            Doubt::OtherTenants => (
                "record is of another tenant than the first: equal numbers are one object",
                "records are of other tenants than the first: equal numbers are one object",
            ),
            Doubt::OtherDevices => (
                "request is left out, because nothing was recorded of how its device's requests were queued: print that device alone by `blkparse`",
                "requests are left out, because nothing was recorded of how their devices' requests were queued: print those devices alone by `blkparse`",
            ),
            Doubt::IgnoredNumbers => (
                "line has another third number than 0, which is not read: a trace of time, object and size is --trace-format tr",
                "lines have another third number than 0, which is not read: a trace of time, object and size is --trace-format tr",
            ),
            Doubt::RecordsBehindEachOther => (
                "record stands behind the first in one file: equal targets are taken for the same",
                "records stand behind the first in one file: equal targets are taken for the same",
            ),
            Doubt::OtherSchemes => (
                "region of another scheme than its target's first is left out: each says the same accesses",
                "regions of other schemes than their target's first are left out: each says the same accesses",
            ),
            Doubt::AppliedOnly => (
                "region is one that a scheme was applied to (damos_before_apply): others are not in this text",
                "regions are those that a scheme was applied to (damos_before_apply): others are not in this text",
            ),
            Doubt::AppliedBesides => (
                "event damos_before_apply is left out: damon_aggregated says the same accesses",
                "events damos_before_apply are left out: damon_aggregated says the same accesses",
            ),
            Doubt::RemappedRequests => (
                "request is passed on to another device of the trace (A) and counts for both: print one device alone by `blkparse`",
                "requests are passed on to other devices of the trace (A) and count for both: print one device alone by `blkparse`",
            ),
            Doubt::Comments => (
                "line begins with # and is left out as a comment, though it has as many fields as others",
                "lines begin with # and are left out as comments, though they have as many fields as others",
            ),
            Doubt::UnknownCommands => (
                "command is left out, because which of its words are keys is not known",
                "commands are left out, because which of their words are keys is not known",
            ),
            Doubt::CutLine => {
                ("last line has no end, so that it may be cut", "last lines have no end, so that they may be cut")
            }
        }
    }
}

/// Something that was done, and how often.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remark {
    /// What was done.
    pub doubt: Doubt,
    /// How many records, lines or columns it was done to, at least 1.
    pub count: u64,
    /// The text, where it is not made of the count alone.
    text: Option<String>,
}

impl Remark {
    /// That addresses of several processes fall together, and what to do.
    pub(crate) fn several_processes(processes: usize, remedy: &str) -> Option<Remark> {
        let text = format!(
            "addresses are of {processes} processes or threads and are taken for those of one address space: {remedy}"
        );
        (processes > 1).then(|| Remark::with_text(Doubt::SeveralProcesses, processes as u64, text))
    }

    /// That a tool's text ends within a line.
    pub(crate) fn cut_line(is_cut: bool) -> Option<Remark> {
        is_cut.then_some(Remark { doubt: Doubt::CutLine, count: 1, text: None })
    }

    /// That a kind that has words of its own was done `count` times; `None` if it has none, or nothing was done.
    pub fn counted(doubt: Doubt, count: u64) -> Option<Remark> {
        (count > 0 && !doubt.words().0.is_empty()).then_some(Remark { doubt, count, text: None })
    }

    pub(crate) fn with_text(doubt: Doubt, count: u64, text: String) -> Remark {
        Remark { doubt, count, text: Some(text) }
    }
}

impl fmt::Display for Remark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.text {
            Some(text) => f.write_str(text),
            None => {
                let (one, many) = self.doubt.words();
                write!(f, "{} {}", self.count, if self.count == 1 { one } else { many })
            }
        }
    }
}

/// What is to be known of a trace beside its accesses, once it was read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reading {
    /// What was left out or assumed.
    pub remarks: Vec<Remark>,
    /// What objects were taken for, if the trace is of objects.
    pub objects: Option<ObjectPages>,
}

impl Reading {
    /// What a reader has to say; complete at the end of the trace.
    pub fn of(reader: &dyn TraceReader) -> Reading {
        Reading { remarks: reader.remarks(), objects: reader.objects() }
    }

    /// Whether pages are objects of whatever size, so that an amount of them is no amount of bytes.
    pub fn counts_objects(&self) -> bool {
        self.objects.is_some_and(|objects| !objects.sized)
    }

    /// What objects were taken for, in a sentence for those who read figures; `None` if the trace is of pages.
    pub fn note(&self) -> Option<String> {
        let objects = self.objects?;
        let mean = objects.mean_bytes().map(|mean| format!("{mean:.0}"));
        Some(match (objects.sized, mean) {
            (_, mean) if objects.whole => format!(
                "Objects come and go whole, by their size{}: figures count objects, memory is bytes.",
                mean.map_or(String::new(), |mean| format!(" (mean {mean} bytes)"))
            ),
            (true, mean) => format!(
                "Each object has as many pages of 4 KiB as its size needs{}, and figures count pages; \
                 --objects-one-page-each counts objects.",
                mean.map_or(String::new(), |mean| format!(" (mean {mean} bytes)"))
            ),
            (false, Some(mean)) => format!(
                "Objects count as one page each, whatever their size (mean {mean} bytes): memory is a number of objects, \
                 not of bytes; --objects-have-sizes takes sizes into account."
            ),
            (false, None) => "Objects count as one page each, because no sizes are read: memory is a number of \
                              objects, not of bytes."
                .to_owned(),
        })
    }

    /// As JSON: `remarks`, each with `code`, `count` and `text`, and `objects`, `null` if the trace is of pages.
    pub fn to_json(&self) -> Value {
        let remark =
            |remark: &Remark| json!({ "code": remark.doubt.code(), "count": remark.count, "text": remark.to_string() });
        let objects = self
            .objects
            .map(|objects| json!({ "sized": objects.sized, "whole": objects.whole, "accesses": objects.accesses, "unsized_accesses": objects.unsized_accesses, "bytes": objects.bytes }));
        json!({ "remarks": self.remarks.iter().map(remark).collect::<Vec<_>>(), "objects": objects })
    }

    /// What [`Reading::to_json`] wrote; `None` if it is something else.
    pub fn from_json(value: &Value) -> Option<Reading> {
        let remark = |remark: &Value| {
            let code = remark.get("code")?.as_str()?;
            let doubt = Doubt::ALL.into_iter().find(|doubt| doubt.code() == code)?;
            let text = remark.get("text")?.as_str()?.to_owned();
            Some(Remark::with_text(doubt, remark.get("count")?.as_u64()?, text))
        };
        let remarks = value.get("remarks")?.as_array()?.iter().map(remark).collect::<Option<Vec<_>>>()?;
        let objects = match value.get("objects")? {
            Value::Null => None,
            objects => Some(ObjectPages {
                sized: objects.get("sized")?.as_bool()?,
                whole: objects.get("whole")?.as_bool()?,
                accesses: objects.get("accesses")?.as_u64()?,
                unsized_accesses: objects.get("unsized_accesses").map_or(Some(0), Value::as_u64)?,
                bytes: objects.get("bytes")?.as_u64(),
            }),
        };
        Some(Reading { remarks, objects })
    }
}

/// Counts of what a reader has done so far.
#[derive(Clone, Debug)]
pub(crate) struct Counts([u64; Doubt::ALL.len()]);

impl Default for Counts {
    fn default() -> Counts {
        Counts([0; Doubt::ALL.len()])
    }
}

impl Counts {
    pub(crate) fn add(&mut self, doubt: Doubt) {
        self.0[doubt as usize] += 1;
    }

    /// The same for several.
    pub(crate) fn add_many(&mut self, doubt: Doubt, count: u64) {
        self.0[doubt as usize] += count;
    }

    /// How often something was done.
    pub(crate) fn of(&self, doubt: Doubt) -> u64 {
        self.0[doubt as usize]
    }

    /// All that were counted and have words, in order.
    pub(crate) fn remarks(&self) -> Vec<Remark> {
        Doubt::ALL.into_iter().filter_map(|doubt| Remark::counted(doubt, self.of(doubt))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reading_is_read_back_from_its_json() {
        let mut counts = Counts::default();
        counts.add(Doubt::Deletions);
        let objects =
            Some(ObjectPages { sized: true, whole: true, accesses: 8, unsized_accesses: 1, bytes: Some(70_000) });
        let reading = Reading { remarks: counts.remarks(), objects };
        let again = Reading::from_json(&reading.to_json()).expect("as it was written");
        assert_eq!(again.to_json(), reading.to_json());
        assert_eq!(again.objects, reading.objects);
        assert!(reading.note().is_some_and(|note| note.contains("mean 10000 bytes")));
        assert_eq!(Reading::from_json(&json!({})), None);
    }

    #[test]
    fn every_kind_has_its_place_and_a_name_of_its_own() {
        for (index, doubt) in Doubt::ALL.into_iter().enumerate() {
            assert_eq!(doubt as usize, index);
            assert_eq!(Doubt::ALL.into_iter().filter(|other| other.code() == doubt.code()).count(), 1);
        }
    }
}
