//! The visitors of page-table walks and of looks around a young page, as the model has them (spec: mglru §7, §8).

use super::*;

pub(super) struct Walker<'a> {
    pub(super) model: &'a mut MglruModel,
    pub(super) lruvec: LruvecId,
    pub(super) can_anon: bool,
    pub(super) took_one: bool,
}

impl Walk for Walker<'_> {
    fn starts(&mut self) {
        if self.model.params.filters && !std::mem::replace(&mut self.took_one, true) {
            let l = self.model.lruvec(self.lruvec);
            l.filters[((l.max_seq + 1) % 2) as usize] = Some(BTreeSet::new());
        }
    }

    fn enters(&mut self, region: RegionKey, region_accessed: Option<bool>, forced: bool) -> bool {
        if forced {
            return true;
        }
        if self.model.params.region_bits && region_accessed == Some(false) {
            return false;
        }
        let l = self.model.lruvec(self.lruvec);
        l.filters[(l.max_seq % 2) as usize].as_ref().is_none_or(|filter| filter.contains(&region))
    }

    fn eligible(&mut self, page: PageId) -> bool {
        let new_rules = self.model.is_7_2();
        let page = &self.model.pages[&page];
        let unlisted = page.generation.is_none();
        page.lruvec == self.lruvec && (page.page_type == FILE || self.can_anon) && !(new_rules && unlisted)
    }

    fn young(&mut self, page: PageId) {
        self.model.promote(page);
    }

    fn leaves(&mut self, region: RegionKey, entries: u32, young: u32) {
        let l = self.model.lruvec(self.lruvec);
        if young * 8 >= entries
            && let Some(filter) = &mut l.filters[((l.max_seq + 1) % 2) as usize]
        {
            filter.insert(region);
        }
    }
}

pub(super) struct Looker<'a> {
    pub(super) model: &'a mut MglruModel,
    pub(super) lruvec: LruvecId,
    pub(super) with_anon: bool,
}

impl LookAround for Looker<'_> {
    fn eligible(&mut self, page: PageId) -> bool {
        let new_rules = self.model.is_7_2();
        let page = &self.model.pages[&page];
        let isolated = page.generation.is_none();
        page.lruvec == self.lruvec && (page.page_type == FILE || self.with_anon) && !(new_rules && isolated)
    }

    fn young(&mut self, page: PageId) {
        self.model.neighbour(page);
    }
}
