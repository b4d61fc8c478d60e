//! Copies on the host of operands that lie on devices, for functions that can only use the host.
//!
//! Operands may overlap, since an output can be an input's memory or a part of it. Their copies
//! overlap in the same way: every run of connected bytes of one device has one copy.

use super::device::Device;
use crate::error::Result;
use crate::storage::{ALIGN, Block};
use crate::tensor::View;
use std::sync::Arc;

/// An operand and the device that it is on; `None` is the host.
pub struct Operand<'a> {
    pub view: &'a View,
    pub device: Option<&'a Arc<Device>>,
    /// Are the elements that it has now needed?
    pub reads: bool,
    /// Are they overwritten, all or some?
    pub writes: bool,
}

impl Operand<'_> {
    /// The device and the bytes on it, if there are any.
    fn span(&self) -> Option<(&Arc<Device>, usize, usize)> {
        let begin = self.view.ptr() as usize;
        let bytes = self.view.size_bytes();
        let device = self.device.filter(|_| bytes > 0 && begin != 0)?;
        Some((device, begin, begin + bytes))
    }
}

/// A run of bytes of a device, and its copy.
struct Region {
    device: Arc<Device>,
    begin: usize,
    end: usize,
    reads: bool,
    /// Page-locked memory, and where in it the copy begins: addresses keep their alignment.
    block: Option<Block>,
}

/// What is to be copied back: from the host, to the device, and how many bytes.
struct Back {
    device: Arc<Device>,
    from: *const u8,
    to: *mut u8,
    bytes: usize,
}

// SAFETY: addresses only; the memory behind them is owned by the regions' blocks and, as every
// operand's, by the caller.
unsafe impl Send for Back {}
// SAFETY: as above.
unsafe impl Sync for Back {}

/// Host copies of operands.
pub struct Staged {
    views: Vec<View>,
    regions: Vec<Region>,
    back: Vec<Back>,
}

impl Staged {
    /// Copies the operands that are read to the host. Contiguous operands only.
    pub fn new(operands: &[Operand<'_>]) -> Result<Staged> {
        let mut staged = Staged { views: Vec::new(), regions: regions(operands), back: Vec::new() };
        for region in &mut staged.regions {
            region.fill()?;
        }
        for operand in operands {
            let view = staged.view(operand);
            if let (Some((device, begin, end)), true) = (operand.span(), operand.writes) {
                let (device, from, to) = (device.clone(), view.ptr(), operand.view.ptr());
                staged.back.push(Back { device, from, to, bytes: end - begin });
            }
            staged.views.push(view);
        }
        Ok(staged)
    }

    /// The operands' views: of copies, where they are on a device.
    pub fn views(&self) -> &[View] {
        &self.views
    }

    /// Copies what was written back to the devices.
    pub fn write_back(&self) -> Result<()> {
        for Back { device, from, to, bytes } in &self.back {
            // SAFETY: both are valid for these bytes: a part of a region's copy, and the operand.
            unsafe { device.write(*to, *from, *bytes)? };
        }
        Ok(())
    }

    fn view(&self, operand: &Operand<'_>) -> View {
        let Some((device, begin, _)) = operand.span() else { return operand.view.clone() };
        let holds =
            |r: &&Region| Arc::ptr_eq(&r.device, device) && r.begin <= begin && begin < r.end;
        let copy = self.regions.iter().find(holds).and_then(|region| region.at(begin));
        let (shape, dtype) = (operand.view.shape().clone(), operand.view.dtype());
        match copy {
            // SAFETY: the region's copy holds the operand's bytes at the same distance from its
            // start, and with the same alignment; it lives as long as `self`.
            Some(ptr) => unsafe { View::new(ptr, shape, dtype) },
            None => View::absent(shape, dtype),
        }
    }
}

impl Region {
    /// Bytes before the copy that keep its alignment.
    fn skip(&self) -> usize {
        self.begin % ALIGN
    }

    fn at(&self, address: usize) -> Option<*mut u8> {
        let block = self.block.as_ref()?;
        Some(block.ptr().wrapping_add(self.skip() + address - self.begin))
    }

    /// Takes memory for the copy and makes it, if it is read.
    fn fill(&mut self) -> Result<()> {
        let bytes = self.end - self.begin;
        let block = self.device.pinned().alloc(self.skip() + bytes)?;
        let to = block.ptr().wrapping_add(self.skip());
        self.block = Some(block);
        if self.reads {
            // SAFETY: the operands cover these bytes of the device; the block holds as many.
            unsafe { self.device.read(to, self.begin as *const u8, bytes)? };
        }
        Ok(())
    }
}

/// The connected runs of bytes on devices that the operands cover.
fn regions(operands: &[Operand<'_>]) -> Vec<Region> {
    let mut regions: Vec<Region> = Vec::new();
    for operand in operands {
        let Some((device, begin, end)) = operand.span() else { continue };
        let (device, reads) = (device.clone(), operand.reads);
        let mut joined = Region { device, begin, end, reads, block: None };
        regions.retain(|r| {
            let meets = Arc::ptr_eq(&r.device, &joined.device)
                && r.begin < joined.end
                && joined.begin < r.end;
            if meets {
                joined.begin = joined.begin.min(r.begin);
                joined.end = joined.end.max(r.end);
                joined.reads |= r.reads;
            }
            !meets
        });
        regions.push(joined);
    }
    regions
}
