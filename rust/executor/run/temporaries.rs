//! Memory that stands for outputs until a call is completed.

use crate::cuda::Device;
use crate::error::Result;
use crate::executor::on_device;
use crate::kernels::copy::{Buffer, add, copy};
use crate::operator::OpReq;
use crate::storage::{ALIGN, Block};
use crate::tensor::View;
use std::sync::Arc;

/// How one output is finished after the kernel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum After {
    Nothing,
    /// The kernel wrote a temporary: add it.
    Add,
    /// The kernel wrote a temporary: copy it.
    Copy,
    /// The kernel wrote scratch: discard it.
    Forget,
}

/// Memory in the place of some outputs for the time of one call.
pub struct Temporaries {
    pub views: Arc<[View]>,
    #[expect(dead_code, reason = "owns what the views show")]
    memory: Owner,
    /// The device of the memory; `None` is the host.
    device: Option<Arc<Device>>,
}

/// The owner of temporary memory.
enum Owner {
    Host(Buffer),
    Device(Block),
}

impl Temporaries {
    pub fn new(
        plan: &[(OpReq, After)],
        outputs: &[View],
        device: Option<&Arc<Device>>,
    ) -> Result<Self> {
        let needs = |after: After| after != After::Nothing;
        let aligned = |v: &View| v.size_bytes().next_multiple_of(ALIGN);
        let total: usize =
            plan.iter().zip(outputs).filter(|(p, _)| needs(p.1)).map(|(_, v)| aligned(v)).sum();
        let mut memory = match device {
            None => Owner::Host(Buffer::new(total)),
            Some(device) => Owner::Device(device.memory().alloc(total)?),
        };
        let mut at = 0;
        let views = plan
            .iter()
            .zip(outputs)
            .map(|(p, output)| {
                if !needs(p.1) {
                    return output.clone();
                }
                let (shape, dtype) = (output.shape().clone(), output.dtype());
                let view = match &mut memory {
                    Owner::Host(buffer) => buffer.view(at, shape, dtype),
                    // SAFETY: the block holds all temporaries, and lives as long as the views.
                    Owner::Device(block) => unsafe {
                        View::new(block.ptr().wrapping_add(at), shape, dtype)
                    },
                };
                at += aligned(output);
                view
            })
            .collect();
        Ok(Temporaries { memory, views, device: device.cloned() })
    }

    /// Adds or copies the temporaries to the outputs that they stood for.
    pub fn complete(&self, plan: &[(OpReq, After)], outputs: &[View]) -> Result<()> {
        for ((p, temporary), output) in plan.iter().zip(&*self.views).zip(outputs) {
            match (p.1, &self.device) {
                (After::Nothing | After::Forget, _) => {}
                (After::Add, None) => add(temporary, output),
                (After::Copy, None) => copy(temporary, output),
                (after, Some(device)) => {
                    on_device::complete(device, temporary, output, after == After::Add)?;
                }
            }
        }
        Ok(())
    }
}
