//! Operators of computer vision: boxes and detection, regions of interest, sampling and resizing.

pub mod binned;
pub mod box_coding;
pub mod box_nms;
pub mod correlation;
pub mod deformable;
mod deformable_columns;
pub mod geometry;
pub mod matching;
pub mod multibox;
pub mod multibox_detection;
pub mod multibox_target;
pub mod proposal;
pub mod psroi;
pub mod resize;
pub mod roi_align;
pub mod sampler;

use super::higher_order::complete;
use crate::operator::{OpDef, Registry};

/// Registers the family.
pub fn register(registry: &Registry) {
    let families: &[fn() -> Vec<OpDef>] = &[
        box_coding::operators,
        box_nms::operators,
        matching::operators,
        multibox::operators,
        multibox_target::operators,
        multibox_detection::operators,
        resize::operators,
        sampler::operators,
        correlation::operators,
        roi_align::operators,
        psroi::operators,
        deformable::operators,
        proposal::operators,
    ];
    for def in families.iter().flat_map(|family| family()) {
        registry.add(complete(def)).expect("built-in operators have names of their own");
    }
}
