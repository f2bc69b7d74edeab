//! The name that was meant: by the edits between two words (Damerau and Levenshtein, by the crate `strsim`).

/// Words that need more edits than this part of their letters are not taken for each other.
const LIKE: f64 = 0.6;

/// The name most like `word`, if one is like it at all.
///
/// ```
/// use refault_trace::similar::most_similar;
///
/// assert_eq!(most_similar("zpif", ["uniform", "zipf"].into_iter()), Some("zipf"));
/// assert_eq!(most_similar("q", ["uniform", "zipf"].into_iter()), None);
/// ```
pub fn most_similar<'a>(word: &str, names: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let scored = names.map(|name| (strsim::normalized_damerau_levenshtein(word, name), name));
    let best = scored.max_by(|(a, _), (b, _)| a.total_cmp(b))?;
    (best.0 >= LIKE).then_some(best.1)
}

/// `did you mean 'zipf'? there are …`, or only what there is.
pub fn or_meant(word: &str, names: &[&str], there: &str) -> String {
    let known = format!("{there} {}", names.join(", "));
    match most_similar(word, names.iter().copied()) {
        Some(similar) => format!("did you mean '{similar}'? {known}"),
        None => known,
    }
}
