//! One request: what is asked, whether the answer is of the version that was opened, and what an error means.

use std::io::ErrorKind;
use std::ops::Range;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use chrono::{DateTime, TimeDelta, Utc};
use futures_util::{Stream, StreamExt};
use object_store::client::HttpError;
use object_store::path::Path;
use object_store::{GetOptions, GetRange, GetResultPayload, ObjectMeta, ObjectStore};

use crate::http::{Refused, causes};
use crate::store::Counts;

/// Why a range was not fetched.
#[derive(Clone, Debug)]
pub(crate) struct Fault {
    pub(crate) kind: ErrorKind,
    pub(crate) message: String,
}

impl From<&Fault> for std::io::Error {
    fn from(fault: &Fault) -> std::io::Error {
        std::io::Error::new(fault.kind, fault.message.clone())
    }
}

/// The tag of a version if it stands for the same bytes. A weak one stands for the same contents in some server's
/// sense.
fn strong_tag(meta: &ObjectMeta) -> Option<&str> {
    meta.e_tag.as_deref().filter(|tag| !tag.starts_with("W/"))
}

/// Whether an answer is of the version that was opened, as far as the two say.
///
/// Tags are compared without their `W/`: a server, or a proxy that packs answers, may call a tag weak in one
/// answer and not in the next. What that leaves open the time of the last change tells, which is compared in any case.
fn same_version(opened: &ObjectMeta, seen: &ObjectMeta) -> bool {
    let opaque = |meta: &ObjectMeta| meta.e_tag.as_deref().map(|tag| tag.trim_start_matches("W/").to_owned());
    let time = |meta: &ObjectMeta| Some(meta.last_modified).filter(|time| time.timestamp() != 0);
    let same_time = match (time(opened), time(seen)) {
        (Some(opened), Some(seen)) => opened == seen,
        (None, None) => true,
        // An answer that repeats a strong tag need not repeat the rest.
        _ => strong_tag(opened).is_some() && strong_tag(opened) == strong_tag(seen),
    };
    let other = opened.version.is_some() && seen.version.is_some() && opened.version != seen.version;
    opened.size == seen.size && opaque(opened) == opaque(seen) && same_time && !other
}

/// Whether a version's name stands for the same bytes for ever, by what was answered at a time: a strong tag does, and
/// so does the time of a change that is long enough ago that clocks need not agree better.
pub(crate) fn stands_for_bytes(meta: &ObjectMeta, answered: DateTime<Utc>) -> bool {
    let known = meta.last_modified.timestamp() != 0;
    strong_tag(meta).is_some() || (known && answered - meta.last_modified >= TimeDelta::minutes(1))
}

/// Whether an object was changed in the second of the answer, and says so by that second alone: it may change once more
/// and say the same. A second later it says something else.
pub(crate) fn may_change_unseen(meta: &ObjectMeta, answered: DateTime<Utc>) -> bool {
    let ago = answered - meta.last_modified;
    strong_tag(meta).is_none() && ago >= TimeDelta::zero() && ago < TimeDelta::seconds(1)
}

/// Why a request failed, and after how long the same request may succeed, if ever.
pub(crate) type Failed = (Fault, Option<Duration>);

/// Asks for a range and reads the answer, no further than the range is long.
pub(crate) async fn get(
    store: &dyn ObjectStore,
    ours: bool,
    meta: &ObjectMeta,
    range: Range<u64>,
    counts: &Counts,
) -> Result<Bytes, Failed> {
    counts.requests.fetch_add(1, Ordering::Relaxed);
    let mut options = GetOptions::new().with_range(Some(GetRange::Bounded(range.clone())));
    // A weak tag never matches: it is only compared with the answer's.
    options.if_match = strong_tag(meta).map(str::to_owned);
    let path = &meta.location;
    let failed = |error: object_store::Error| (fault(&error, path), again(&error, ours));
    let result = store.get_opts(path, options).await.map_err(failed)?;
    if !same_version(meta, &result.meta) {
        return Err((changed_at(path.as_ref()), None));
    }
    let wanted = range.end - range.start;
    let wrong = |message| Fault { kind: ErrorKind::UnexpectedEof, message };
    if result.range != range {
        let message = format!("the store answered with bytes {:?} instead of {range:?}", result.range);
        return Err((wrong(message), None));
    }
    let bytes = if matches!(result.payload, GetResultPayload::Stream(_)) {
        let came = collect(result.into_stream(), wanted, counts).await.map_err(failed)?;
        came.ok_or_else(|| (wrong(format!("the store answered with more than the {wanted} bytes of {range:?}")), None))?
    } else {
        let bytes = result.bytes().await.map_err(failed)?;
        counts.fetched.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        bytes
    };
    if bytes.len() as u64 != wanted {
        let message = format!("the store answered with {} bytes instead of the {wanted} of {range:?}", bytes.len());
        return Err((wrong(message), Some(Duration::ZERO)));
    }
    Ok(bytes)
}

/// What a stream brings; none if that is more than was wanted, of which no more is held than one part of it.
async fn collect(
    mut stream: impl Stream<Item = object_store::Result<Bytes>> + Unpin,
    wanted: u64,
    counts: &Counts,
) -> object_store::Result<Option<Bytes>> {
    let (mut first, mut rest) = (Bytes::new(), Vec::new());
    let mut came = 0;
    while let Some(part) = stream.next().await.transpose()? {
        counts.fetched.fetch_add(part.len() as u64, Ordering::Relaxed);
        came += part.len() as u64;
        if came > wanted {
            return Ok(None);
        }
        if came == part.len() as u64 {
            first = part;
            continue;
        }
        if rest.is_empty() {
            rest.reserve_exact(wanted as usize);
            rest.extend_from_slice(&first);
            first = Bytes::new();
        }
        rest.extend_from_slice(&part);
    }
    Ok(Some(if rest.is_empty() { first } else { rest.into() }))
}

/// After how long, at least, the same request may succeed; none if it will not.
///
/// Of answers that this crate's own client has looked at, all else is what no repetition mends: a range that is not the
/// one asked for, headers that are lacking. Other stores' errors are not known so well.
pub(crate) fn again(error: &object_store::Error, ours: bool) -> Option<Duration> {
    let object_store::Error::Generic { source, .. } = error else { return None };
    match Refused::of(source.as_ref()) {
        Some(refused) => refused.passes().then_some(refused.wait),
        None => (!ours || causes(source.as_ref()).any(|cause| cause.is::<HttpError>())).then_some(Duration::ZERO),
    }
}

pub(crate) fn fault(error: &object_store::Error, path: &Path) -> Fault {
    use object_store::Error;
    let kind = match error {
        Error::NotFound { .. } => ErrorKind::NotFound,
        Error::PermissionDenied { .. } | Error::Unauthenticated { .. } => ErrorKind::PermissionDenied,
        Error::Precondition { .. } => return changed_at(path.as_ref()),
        // No range is asked for that the object did not have when it was opened.
        Error::Generic { source, .. } if Refused::of(source.as_ref()).is_some_and(|refused| refused.status == 416) => {
            return changed_at(path.as_ref());
        }
        _ => ErrorKind::Other,
    };
    Fault { kind, message: error.to_string() }
}

fn changed_at(path: &str) -> Fault {
    let message = format!("the object {path} was changed after it was opened: open it again");
    Fault { kind: ErrorKind::StaleNetworkFileHandle, message }
}

pub(crate) fn gone() -> Fault {
    Fault { kind: ErrorKind::Other, message: "the request was given up".to_owned() }
}
