//! Devices that hold files and swap: latency, bandwidth, parallelism, queueing.
//!
//! A device serves `parallel` requests at a time; further ones queue, first come, first served. A request costs its
//! latency plus the transfer of its pages; all transfers share the bandwidth. A rotating device skips the latency when
//! a request continues where the last one ended. A *synchronous* device has no queue: the caller's CPU does the work
//! (RAM disk, zram), so that its latency is CPU time.
//!
//! Cost: O(log parallel) per request.
//!
//! ```
//! use refault_sim::machine::device::{Device, DeviceModel, Direction};
//!
//! let mut disk = Device::new(DeviceModel::preset("nvme").expect("one of the presets"));
//! let first = disk.submit(0, Direction::Read, 0, 1);
//! assert!(first > 0 && !disk.is_synchronous()); // when the read is done, in ns
//! assert!(DeviceModel::preset("drum").is_none());
//! ```

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// What a device can do. Times in nanoseconds.
#[derive(Clone, Debug, PartialEq)]
pub struct DeviceModel {
    /// From start to end of a read of nothing.
    pub read_latency: u64,
    /// From start to end of a write of nothing.
    pub write_latency: u64,
    /// Transfer of one page while reading.
    pub read_page: u64,
    /// Transfer of one page while writing.
    pub write_page: u64,
    /// Requests served at the same time, at least 1.
    pub parallel: u32,
    /// The caller's CPU does the work, and the request is over when the call returns.
    pub synchronous: bool,
    /// Sequential requests cost no latency, and swap is read ahead by position.
    pub rotating: bool,
}

/// A named model and where its numbers are from.
pub struct Preset {
    /// As scenario files call it.
    pub name: &'static str,
    /// The numbers.
    pub model: DeviceModel,
    /// Where they are from.
    pub source: &'static str,
}

/// All presets.
pub const PRESETS: [Preset; 5] = [
    Preset {
        name: "ramdisk",
        model: DeviceModel {
            read_latency: 600,
            write_latency: 600,
            read_page: 350,
            write_page: 350,
            parallel: 1,
            synchronous: true,
            rotating: false,
        },
        source: "estimate: block-layer entry about 0.6 us and one 4 KiB copy at about 12 GB/s; `refault-bench calibrate` measures the copy",
    },
    Preset {
        name: "zram-lz4",
        model: DeviceModel {
            read_latency: 300,
            write_latency: 300,
            read_page: 1_000,
            write_page: 4_500,
            parallel: 1,
            synchronous: true,
            rotating: false,
        },
        source: "estimate between measurements of LZ4 on heap-like and text-like 4 KiB pages: compress 3-8.6 us, decompress 0.7-1.2 us; `refault-bench calibrate` measures both",
    },
    Preset {
        name: "nvme",
        model: DeviceModel {
            read_latency: 80_000,
            write_latency: 20_000,
            read_page: 1_300,
            write_page: 1_600,
            parallel: 64,
            synchronous: false,
            rotating: false,
        },
        source: "typical of data sheets of PCIe 3 x4 drives of 2019-2021: 80 us random read at queue depth 1, 3.2/2.6 GB/s, about 600 k reads/s",
    },
    Preset {
        name: "sata-ssd",
        model: DeviceModel {
            read_latency: 110_000,
            write_latency: 50_000,
            read_page: 7_600,
            write_page: 8_000,
            parallel: 32,
            synchronous: false,
            rotating: false,
        },
        source: "typical of data sheets of SATA 6 Gb/s drives: 540/510 MB/s, queue of 32, about 95 k reads/s",
    },
    Preset {
        name: "hdd",
        model: DeviceModel {
            read_latency: 12_700_000,
            write_latency: 12_700_000,
            read_page: 22_000,
            write_page: 22_000,
            parallel: 1,
            synchronous: false,
            rotating: true,
        },
        source: "typical of 7200 rpm drives: 8.5 ms average seek and 4.2 ms half a turn, 180 MB/s",
    },
];

impl DeviceModel {
    /// The preset of that name.
    pub fn preset(name: &str) -> Option<DeviceModel> {
        PRESETS.iter().find(|p| p.name == name).map(|p| p.model.clone())
    }

    /// Says what cannot work; `name` is what the device is called in the message.
    ///
    /// # Errors
    /// One line that names the value.
    pub fn check(&self, name: &str) -> Result<(), String> {
        if !(1..=65_536).contains(&self.parallel) {
            return Err(format!("{name}: parallel must be from 1 to 65536, not {}", self.parallel));
        }
        if self.read_page == 0 || self.write_page == 0 {
            return Err(format!("{name}: a page that transfers in no time is more bandwidth than there is"));
        }
        for (field, value) in [
            ("read_latency", self.read_latency),
            ("write_latency", self.write_latency),
            ("read_page", self.read_page),
            ("write_page", self.write_page),
        ] {
            if value > 3_600_000_000_000 {
                return Err(format!("{name}: {field} of more than an hour; a device without bandwidth never answers"));
            }
        }
        Ok(())
    }
}

/// Reading or writing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// To memory.
    Read,
    /// From memory.
    Write,
}

/// A device at work.
#[derive(Clone, Debug)]
pub struct Device {
    model: DeviceModel,
    /// When each channel is free again, soonest first.
    channels: BinaryHeap<Reverse<u64>>,
    /// When the shared transfer path is free again.
    transfer_free: u64,
    /// Position after the last request.
    position: u64,
    /// Requests and pages by direction (read, write), and time that channels were in use.
    pub requests: [u64; 2],
    /// Pages by direction (read, write).
    pub pages: [u64; 2],
    /// Sum over all channels of the time they were in use, in nanoseconds.
    pub busy: u64,
}

impl Device {
    /// An idle device.
    pub fn new(model: DeviceModel) -> Device {
        let channels = vec![Reverse(0); model.parallel.max(1) as usize].into();
        Device { model, channels, transfer_free: 0, position: u64::MAX, requests: [0; 2], pages: [0; 2], busy: 0 }
    }

    /// Its numbers.
    pub fn model(&self) -> &DeviceModel {
        &self.model
    }

    /// Whether requests are done by the caller's CPU.
    #[inline]
    pub fn is_synchronous(&self) -> bool {
        self.model.synchronous
    }

    /// CPU time of a request on a synchronous device.
    #[inline]
    pub fn synchronous_cost(&mut self, direction: Direction, pages: u64) -> u64 {
        let (latency, page) = self.times(direction);
        self.requests[direction as usize] += 1;
        self.pages[direction as usize] += pages;
        let cost = latency + pages * page;
        self.busy += cost;
        cost
    }

    /// Queues a request at `now` and returns when it will be done.
    pub fn submit(&mut self, now: u64, direction: Direction, position: u64, pages: u64) -> u64 {
        let (mut latency, page) = self.times(direction);
        if self.model.rotating && position == self.position {
            latency = 0;
        }
        self.position = position + pages;
        self.requests[direction as usize] += 1;
        self.pages[direction as usize] += pages;
        let mut channel = self.channels.peek_mut().expect("invariant: at least one channel");
        let start = now.max(channel.0);
        let transfer = pages * page;
        // The transfer path is taken for the transfer alone, in the order of arrival.
        self.transfer_free = self.transfer_free.max(start) + transfer;
        let done = (start + latency + transfer).max(self.transfer_free + latency);
        *channel = Reverse(done);
        self.busy += done - start;
        done
    }

    fn times(&self, direction: Direction) -> (u64, u64) {
        match direction {
            Direction::Read => (self.model.read_latency, self.model.read_page),
            Direction::Write => (self.model.write_latency, self.model.write_page),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_request_takes_latency_and_transfer() {
        let mut device = Device::new(DeviceModel::preset("nvme").unwrap());
        assert_eq!(device.submit(1000, Direction::Read, 0, 1), 1000 + 80_000 + 1_300);
    }

    #[test]
    fn requests_beyond_the_channels_queue() {
        let mut model = DeviceModel::preset("nvme").unwrap();
        model.parallel = 2;
        let mut device = Device::new(model);
        let first = device.submit(0, Direction::Read, 0, 1);
        device.submit(0, Direction::Read, 9, 1);
        let third = device.submit(0, Direction::Read, 99, 1);
        assert!(third >= first + 80_000, "{third} waits for a channel");
    }

    #[test]
    fn throughput_never_exceeds_the_bandwidth() {
        let mut device = Device::new(DeviceModel::preset("sata-ssd").unwrap());
        let done = (0..1000).map(|i| device.submit(0, Direction::Read, i * 7, 1)).max().unwrap();
        assert!(done >= 1000 * 7_600);
    }

    #[test]
    fn a_disk_reads_on_without_seeking() {
        let mut device = Device::new(DeviceModel::preset("hdd").unwrap());
        let first = device.submit(0, Direction::Read, 100, 8);
        assert_eq!(device.submit(first, Direction::Read, 108, 8), first + 8 * 22_000);
        assert!(device.submit(first, Direction::Read, 500, 8) > first + 12_000_000);
    }
}
