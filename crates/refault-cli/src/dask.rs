//! `refault compare --dask`: the runs come from a Dask cluster.
//!
//! The command speaks no Dask. It hands what was asked, as one JSON text, to the Python package `refault`, whose sweep
//! it is (`refault.cluster`). It takes the runs back as the JSON that `--format json` writes; tables, verdicts and
//! files are made of them here, as of runs of this machine. Files are named by their paths: every worker must find them
//! there.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use refault_console::{Failure, say};
use refault_lab::results::read_json;
use refault_lab::size::Size;
use refault_lab::sweep::{Sweep, TraceRuns, WarmUp};
use refault_trace::{ObjectsAs, Options, Source};
use serde_json::{Map, Value, json};

/// Names another interpreter than the one of [`PYTHON`].
const PYTHON_VARIABLE: &str = "REFAULT_PYTHON";
const PYTHON: &str = "python3";

/// What the interpreter is given to do. A package that is not there is told like every other failure.
const PROGRAM: &str = "\
import json, sys
try:
    from refault.cluster import main
except ImportError as error:
    print(json.dumps({'missing': str(error)}))
else:
    main()
";

/// Runs a sweep on the cluster whose scheduler is at `address`.
pub fn run_there(address: &str, sources: &[Source], plan: &Sweep) -> Result<Vec<TraceRuns>, Failure> {
    let WarmUp::Accesses(warm_up) = plan.warm_up else {
        let remedy = "name a number of accesses";
        return Err(Failure::usage("a share cannot warm up traces that others read", "--warm-up", remedy));
    };
    let request = json!({
        "version": env!("CARGO_PKG_VERSION"),
        "address": address,
        "traces": sources.iter().map(travelling).collect::<Result<Vec<_>, _>>()?,
        "policies": plan.policies.iter().map(|policy| &policy.label).collect::<Vec<_>>(),
        "memory": plan.sizes.iter().map(|size| text_of(*size)).collect::<Vec<_>>(),
        "swap": plan.swap.map_or_else(|| "none".to_owned(), text_of),
        "warm_up": warm_up,
    });
    let answer = ask(&request)?;
    let found: Value = serde_json::from_slice(&answer).unwrap_or_default();
    let said = |name: &str| found.get(name).and_then(Value::as_str);
    if let Some(error) = said("missing") {
        let remedy = format!("pip install 'refault[dask]' there, or name another interpreter in {PYTHON_VARIABLE}");
        return Err(Failure::usage(format!("--dask needs the Python package refault: {error}"), python(), remedy));
    }
    if let Some(sentence) = said("refused") {
        return Err(Failure::Usage(sentence.to_owned()));
    }
    if let Some(error) = said("failed") {
        return Err(Failure::failed("the sweep failed", address, error));
    }
    for remark in found.get("remarks").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str) {
        say(remark);
    }
    read_json(&answer, warm_up).map_err(|error| {
        let remedy = "it ended before its answer was whole; what it wrote stands above";
        Failure::failed(format!("no answer from the Python package ({error})"), python(), remedy)
    })
}

fn python() -> String {
    std::env::var(PYTHON_VARIABLE).unwrap_or_else(|_| PYTHON.to_owned())
}

/// The answer to a request. What the interpreter logs and how far it is goes to standard error, past us.
fn ask(request: &Value) -> Result<Vec<u8>, Failure> {
    let cannot = |error: std::io::Error| {
        let remedy = format!("{error}; install it, or name another interpreter in {PYTHON_VARIABLE}");
        Failure::usage("--dask needs Python, which cannot be started", python(), remedy)
    };
    let mut child = Command::new(python())
        .args(["-c", PROGRAM])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(cannot)?;
    if let Some(mut to) = child.stdin.take() {
        // One that ends without reading says why in its answer, or has none.
        let _ = to.write_all(request.to_string().as_bytes());
    }
    child.wait_with_output().map(|output| output.stdout).map_err(cannot)
}

/// A trace as a worker opens it.
fn travelling(source: &Source) -> Result<Value, Failure> {
    let stays = |what: &str, option: &str| {
        let remedy = "store what is meant with 'refault trace convert' where every worker can read it";
        Err(Failure::usage(format!("{what} is not sent to a cluster"), option, remedy))
    };
    match source {
        Source::Workload(spec) => Ok(json!({ "workload": spec.to_string() })),
        Source::Part { part, .. } if part.from_ns.is_some() || part.to_ns.is_some() => {
            stays("a part by time", "--from, --to")
        }
        Source::Part { whole, part } => {
            let mut trace = travelling(whole)?;
            trace["skip"] = json!(part.skip);
            trace["limit"] = json!(part.limit);
            Ok(trace)
        }
        Source::File { path, .. } if path.starts_with("/proc/self/fd") => stays("standard input", "-"),
        Source::File { path, options } => Ok(Value::Object(file(path, options, source)?)),
        Source::Custom(_) => stays("a trace in memory", &source.name()),
    }
}

/// Only what the caller asked for, so that tasks of equal traces are equal for every caller.
fn file(path: &Path, options: &Options, source: &Source) -> Result<Map<String, Value>, Failure> {
    let path = std::path::absolute(path)
        .map_err(|error| Failure::failed("cannot find the working directory", path.display(), error))?;
    let Some(path) = path.to_str() else {
        return Err(Failure::usage("a path that is not text is not sent to a cluster", path.display(), "rename it"));
    };
    let mut trace = Map::from_iter([("path".to_owned(), json!(path)), ("name".to_owned(), json!(source.name()))]);
    let mut put = |name: &str, value: Option<Value>| value.map(|value| trace.insert(name.to_owned(), value));
    put("format", options.format.map(|format| json!(format.name())));
    put("kind", options.kind.map(|kind| json!(kind.name())));
    let columns = options.columns.told();
    put("columns", (!columns.is_empty()).then(|| json!(columns)));
    put("block_bytes", options.block_bytes.map(|bytes| json!(bytes)));
    put(
        "objects_have_sizes",
        match options.objects {
            ObjectsAs::Sized => Some(json!(true)),
            ObjectsAs::OnePageEach => Some(json!(false)),
            ObjectsAs::SizedIfKnown => None,
        },
    );
    let switches = [
        ("skip_size_zero", options.skip_size_zero),
        ("file_order", options.file_order),
        ("strict", options.strict),
        ("skip_instructions", options.skip_instructions),
        ("collapse", options.collapse),
    ];
    for (name, is_on) in switches {
        put(name, is_on.then_some(json!(true)));
    }
    Ok(trace)
}

/// A size that is read back as it was; people's texts are rounded.
fn text_of(size: Size) -> String {
    match size {
        Size::Bytes(bytes) => bytes.to_string(),
        size => size.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_back_as_they_were() {
        for text in ["25%", "0.3%", "12.345%", "4096p", "64M", "123456789"] {
            let size: Size = text.parse().expect("a size");
            assert_eq!(text_of(size).parse(), Ok(size), "{text}");
        }
    }
}
