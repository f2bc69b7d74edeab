//! Room for data that a recording's limit has beyond the cell's.

use refault_core::PageId;
use refault_sim::{Access, Layout};

/// What the kernels need beside the data of a task. A recording's limit has room for all of it from the beginning
/// (`scripts/ask-kernel`: `Workload.extra`), so that what is not needed yet holds data: at first up to 64 pages more
/// than the cell's limit, at the end four.
pub struct KernelMemory {
    /// Pages of page tables, of anonymous memory and of the mapped file, by region: whether they are there.
    tables: [Vec<bool>; 2],
    /// Nodes of the page cache's tree.
    nodes: Vec<bool>,
    nodes_there: usize,
    file_base: PageId,
    /// Pages that are neither used nor promised to what is missing.
    spare: i64,
}

impl KernelMemory {
    const REGION_PAGES: usize = 512;
    const NODE_PAGES: usize = 64;
    /// Bytes that a group is charged for a node.
    const NODE_BYTES: usize = 584;
    /// What the recorder allows for: nodes to a page of the kernel's, and pages that are for nothing in particular.
    const NODES_PER_PAGE: usize = 7;
    const SPARE: usize = 4;

    /// Nothing was accessed yet.
    pub fn new(layout: &Layout, anon_pages: usize, file_pages: usize, mapped: bool) -> KernelMemory {
        let tables = |pages: usize| vec![false; pages.div_ceil(Self::REGION_PAGES)];
        let mapped_file = if mapped { file_pages } else { 0 };
        let allowed = Self::SPARE
            + anon_pages / Self::REGION_PAGES
            + mapped_file / Self::REGION_PAGES
            + file_pages / (Self::NODE_PAGES * Self::NODES_PER_PAGE);
        KernelMemory {
            tables: [tables(anon_pages), tables(mapped_file)],
            nodes: vec![false; file_pages.div_ceil(Self::NODE_PAGES)],
            nodes_there: 0,
            file_base: layout.file_base(),
            spare: allowed as i64,
        }
    }

    /// Notes an access. True if it makes the kernel need more.
    pub fn touch(&mut self, access: Access) -> bool {
        let file = access.page() >= self.file_base;
        let page = (if file { access.page() - self.file_base } else { access.page() }) as usize;
        let before = self.spare;
        let tables = &mut self.tables[usize::from(file)];
        if !access.is_fd() && !std::mem::replace(&mut tables[page / Self::REGION_PAGES], true) {
            self.spare -= 1;
        }
        if file && !std::mem::replace(&mut self.nodes[page / Self::NODE_PAGES], true) {
            self.spare += self.node_pages() as i64;
            self.nodes_there += 1;
            self.spare -= self.node_pages() as i64;
        }
        self.spare != before
    }

    fn node_pages(&self) -> usize {
        let above = self.nodes_there.div_ceil(Self::NODE_PAGES);
        ((self.nodes_there + above) * Self::NODE_BYTES).div_ceil(4096)
    }

    /// Pages beyond a cell's limit that hold data now.
    pub fn spare(&self) -> u64 {
        self.spare.max(0) as u64
    }
}
