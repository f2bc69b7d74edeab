//! One request: what is asked, whether the answer is of the version that was opened, and what an error means.

use std::ops::Range;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use object_store::{GetOptions, GetRange, ObjectMeta, ObjectStore};

use crate::store::Counts;

/// Why a range was not fetched.
#[derive(Clone, Debug)]
pub(crate) struct Fault {
    pub(crate) kind: std::io::ErrorKind,
    pub(crate) message: String,
}

impl From<&Fault> for std::io::Error {
    fn from(fault: &Fault) -> std::io::Error {
        std::io::Error::new(fault.kind, fault.message.clone())
    }
}

/// The tag of a version if it stands for the same bytes. A weak one stands for the same contents in some server's sense.
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

/// One request. With an error: whether it may pass.
pub(crate) async fn get(
    store: &dyn ObjectStore,
    meta: &ObjectMeta,
    range: Range<u64>,
    counts: &Counts,
) -> Result<Bytes, (Fault, bool)> {
    counts.requests.fetch_add(1, Ordering::Relaxed);
    let mut options = GetOptions::new().with_range(Some(GetRange::Bounded(range.clone())));
    // A weak tag never matches: it is only compared with the answer's.
    options.if_match = strong_tag(meta).map(str::to_owned);
    let failed = |error: object_store::Error| (fault(&error), passes(&error));
    let result = store.get_opts(&meta.location, options).await.map_err(failed)?;
    if !same_version(meta, &result.meta) {
        return Err((changed(meta), false));
    }
    let wanted = range.end - range.start;
    let got = result.range.clone();
    let bytes = result.bytes().await.map_err(failed)?;
    counts.fetched.fetch_add(bytes.len() as u64, Ordering::Relaxed);
    if got != range || bytes.len() as u64 != wanted {
        let message = format!("the store answered with bytes {got:?}, {} of them, instead of {range:?}", bytes.len());
        return Err((Fault { kind: std::io::ErrorKind::UnexpectedEof, message }, true));
    }
    Ok(bytes)
}

/// Whether the same request may succeed later.
pub(crate) fn passes(error: &object_store::Error) -> bool {
    matches!(error, object_store::Error::Generic { .. })
}

pub(crate) fn fault(error: &object_store::Error) -> Fault {
    use object_store::Error;
    let kind = match error {
        Error::NotFound { .. } => std::io::ErrorKind::NotFound,
        Error::PermissionDenied { .. } | Error::Unauthenticated { .. } => std::io::ErrorKind::PermissionDenied,
        Error::Precondition { path, .. } => return changed_at(path),
        _ => std::io::ErrorKind::Other,
    };
    Fault { kind, message: error.to_string() }
}

fn changed(meta: &ObjectMeta) -> Fault {
    changed_at(meta.location.as_ref())
}

fn changed_at(path: &str) -> Fault {
    let message = format!("the object {path} was changed after it was opened: open it again");
    Fault { kind: std::io::ErrorKind::StaleNetworkFileHandle, message }
}

pub(crate) fn gone() -> Fault {
    Fault { kind: std::io::ErrorKind::Other, message: "the request was given up".to_owned() }
}
