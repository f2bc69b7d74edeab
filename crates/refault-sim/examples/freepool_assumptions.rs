//! Which assumptions of the free-pool experiment decide its rows: each varied alone, everything else as it is.
//!
//! `cargo run --release -p refault-sim --example freepool_assumptions [database|build] [SCALE] [REPEATS] [NAME]`

use refault_sim::freepool::{Options, vary};

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let database = arguments.first().is_none_or(|word| word == "database");
    let number = |at: usize, usual: f64| arguments.get(at).and_then(|word| word.parse().ok()).unwrap_or(usual);
    let options = Options { scale: number(1, 1.0 / 64.0), repeats: number(2, 6.0) as usize, ..Options::default() };
    let only = arguments.get(3).map_or("", |word| word);
    println!("| assumption | figure | before | after | ratio |\n|---|---|---|---|---|");
    for v in vary(&options, database, only, &|_| {}) {
        let ratio =
            if v.ratio_error.is_finite() { format!("{:.3} ± {:.3}", v.ratio, v.ratio_error) } else { "–".into() };
        println!("| {} | {} | {:.4} | {:.4} | {ratio} |", v.assumption, v.figure, v.means[0], v.means[1]);
    }
}
