//! What a scenario says about frames: whether there are any, what is kept of evicted pages, huge pages and buffers.

use refault_core::frames::FreePools;
use serde::Deserialize;
use toml::Spanned;

use super::super::config::MachineConfig;
use super::super::frames::KeepsEvicted;
use super::super::high_order::BufferConfig;
use super::{Document, Place, ScenarioError, Time};

/// A contiguous buffer that is asked for again and again.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct BufferTable {
    name: String,
    order: Spanned<u32>,
    every: Spanned<Time>,
    hold: Spanned<Time>,
    start: Option<Time>,
    node: Option<Spanned<usize>>,
}

/// Frames and buffers of the machine.
pub(super) fn add(config: &mut MachineConfig, document: &Document, place: &Place) -> Result<(), ScenarioError> {
    let machine = document.machine.get_ref();
    if machine.frames {
        config.frames = Some(KeepsEvicted::AsPolicy);
    }
    if let Some(keep) = &machine.keep_evicted {
        let error = |reason: String| place.error(keep.span().start, "keep_evicted", reason);
        if !machine.frames {
            return Err(error("there is nothing to keep pages in: add frames = true".into()));
        }
        config.frames = Some(match keep.get_ref().as_str() {
            "no" => KeepsEvicted::Nothing,
            "shared-pools" => KeepsEvicted::Cached(FreePools::TWO),
            "own-pool" => KeepsEvicted::Cached(FreePools::THREE),
            other => return Err(error(format!("'{other}': expected no, shared-pools or own-pool"))),
        });
    }
    for table in &document.buffer {
        let (at, table) = (table.span().start, table.get_ref());
        config.buffers.push(BufferConfig {
            name: table.name.clone(),
            order: *table.order.get_ref(),
            node: table.node.as_ref().map_or(0, |node| *node.get_ref()),
            start: table.start.map_or(0, |time| time.0),
            every: table.every.get_ref().0,
            hold: table.hold.get_ref().0,
        });
        config.check_buffers().map_err(|reason| place.error(at, "buffer", reason))?;
    }
    Ok(())
}

/// A task's share of huge pages.
pub(super) fn huge_pages(
    config: &MachineConfig,
    table: &super::TaskTable,
    place: &Place,
) -> Result<f64, ScenarioError> {
    let Some(share) = &table.huge_pages else { return Ok(0.0) };
    let error = |reason: &str| place.error(share.span().start, "huge_pages", reason);
    match *share.get_ref() {
        value if !(0.0..=1.0).contains(&value) => Err(error("must be a share from 0 to 1")),
        value if value > 0.0 && config.frames.is_none() => {
            Err(error("huge pages need frames: add frames = true to [machine]"))
        }
        value => Ok(value),
    }
}
