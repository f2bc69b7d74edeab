//! The tree of groups, for both models: parents, and everything else looked up each time.

use refault_core::LruvecId;

/// Parent of each lruvec.
#[derive(Clone, Debug)]
pub struct Tree(pub Vec<Option<LruvecId>>);

impl Tree {
    pub fn ancestors(&self, lruvec: LruvecId) -> Vec<LruvecId> {
        let mut chain = vec![lruvec];
        while let Some(parent) = self.0[*chain.last().unwrap() as usize] {
            chain.push(parent);
        }
        chain
    }

    /// Pre-order, the top first.
    pub fn subtree(&self, top: LruvecId) -> Vec<LruvecId> {
        let mut order = vec![top];
        for child in 0..self.0.len() as LruvecId {
            if self.0[child as usize] == Some(top) {
                order.extend(self.subtree(child));
            }
        }
        order
    }
}
