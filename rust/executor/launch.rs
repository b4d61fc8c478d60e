//! Launches of CUDA functions that a program compiles by itself (`rsnet.rtc`).

use super::call_site;
use super::on_device::Issued;
use super::run::distinct;
use crate::context::Context;
use crate::cuda::{Function, Origin};
use crate::engine::{FindCallSite, Push, Task, Var};
use crate::error::{Error, Result};
use crate::ndarray::{Base, NDArray};
use crate::operator::Args;
use crate::profiler::mode;
use smallvec::SmallVec;
use std::sync::Arc;

/// An argument of a launch: an array by its address, or the bytes of a number.
pub enum Argument {
    /// An array that the function reads.
    Read(NDArray),
    /// An array that it may write.
    Written(NDArray),
    Number([u8; 8]),
}

impl Argument {
    fn array(&self) -> Option<&NDArray> {
        match self {
            Argument::Read(array) | Argument::Written(array) => Some(array),
            Argument::Number(_) => None,
        }
    }

    fn written(&self) -> Option<&NDArray> {
        if let Argument::Written(array) = self { Some(array) } else { None }
    }
}

/// A function with its arguments, and how many threads run it.
pub struct Launch {
    /// What operation and errors are called.
    pub name: Arc<str>,
    pub function: Function,
    pub arguments: Vec<Argument>,
    pub blocks: [u32; 3],
    pub threads: [u32; 3],
    /// Bytes of dynamic shared memory of each block.
    pub shared: u32,
}

/// Work of a launch comes from the line that made it, which the operation knows.
struct LaunchOrigin(Arc<str>);

impl Origin for LaunchOrigin {
    fn place(&self, _: u32, error: Error) -> Error {
        error.in_operator(&self.0)
    }
}

impl Launch {
    /// Pushes the launch as an operation on the device of `ctx`, where the arrays are. It ends when
    /// the function is issued.
    ///
    /// # Safety
    /// The function is one of this device, its parameters are as the arguments, and it stays within
    /// the arrays.
    pub unsafe fn push(self, base: &Arc<Base>, ctx: Context) -> Result<()> {
        base.cuda.device(ctx.device_id)?;
        for argument in &self.arguments {
            match argument {
                Argument::Read(array) => array.usable()?,
                Argument::Written(array) => array.writable_in_part()?,
                Argument::Number(_) => {}
            }
        }
        let written = || self.arguments.iter().filter_map(Argument::written);
        let all = self.arguments.iter().filter_map(Argument::array);
        let mut reads: SmallVec<[Var; 6]> = all.map(NDArray::var).collect();
        let mut writes: SmallVec<[Var; 6]> = written().map(NDArray::var).collect();
        distinct(&mut reads, &mut writes);
        let name = self.name.clone();
        let (base_of_task, scope) = (base.clone(), base.profiler.carry_scope());
        let task = Task::sync(move |_| {
            let _scope = scope.enter();
            let base = &base_of_task;
            let _span = base.profiler.operator(mode::IMPERATIVE, &self.name, "", ctx);
            self.issue(base, ctx)
        });
        let call_site: Option<FindCallSite<'_>> = Some(&call_site::current);
        base.engine.push(task, Push { ctx, call_site, ..Push::new(&name, &reads, &writes) })
    }

    fn issue(&self, base: &Base, ctx: Context) -> Result<()> {
        let mut args = Args::default();
        for argument in &self.arguments {
            match argument {
                Argument::Read(a) | Argument::Written(a) => args.push(a.view()?.ptr()),
                Argument::Number(bytes) => args.push(*bytes),
            }
        }
        let device = base.cuda.device(ctx.device_id)?.clone();
        device.issue(|driver, stream| {
            let (at, shared) = (&mut args.addresses(), self.shared);
            // SAFETY: promised by the caller of `push`; the arguments are in `args`.
            unsafe { self.function.launch(driver, stream, self.blocks, self.threads, shared, at) }
        })?;
        let written = self.arguments.iter().filter_map(Argument::written).cloned().collect();
        let origin = Arc::new(LaunchOrigin(self.name.clone()));
        Issued { device, origin, number: 0, written }.end()
    }
}
