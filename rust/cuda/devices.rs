//! The devices of a process, opened one by one when they are first used.

use super::device::Device;
use super::driver::{Address, Driver};
use super::functions::Functions;
use super::primary;
use super::stream::Poll;
use crate::context::Context;
use crate::error::{Error, Result};
use crate::lock::{Held, Lock};
use crate::profiler::Recorder;
use std::collections::BTreeSet;
use std::ffi::{c_int, c_uint};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

/// Numbers of devices are below this.
pub const MAX_DEVICES: usize = 64;

/// `CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL`.
const DEVICE_ORDINAL: c_uint = 9;

/// What to install for the kernels of CUDA, as errors say it.
const EXTRA: &str = "pip install rsnet[cuda13]";

/// Called with the name of an operator that runs on the host for arrays on a device, when it first
/// does; an error refuses the call.
pub type Notice = fn(&str) -> Result<()>;

/// The CUDA devices that are in use, and the driver.
pub struct Devices {
    profiler: Arc<Recorder>,
    /// Operations wait until the device has done them.
    synchronous: bool,
    driver: OnceLock<Arc<Driver>>,
    slots: [OnceLock<Arc<Device>>; MAX_DEVICES],
    /// Held while the driver or a device is opened.
    opening: Lock<()>,
    /// Set in a child that was forked after the driver was opened.
    forked: Arc<AtomicBool>,
    /// Operators that have run on the host for arrays on a device.
    on_host: Lock<BTreeSet<String>>,
    notice: OnceLock<Notice>,
    pub functions: Functions,
}

impl Devices {
    /// No devices; the driver is opened by the first use of one.
    /// `synchronous` if an operation has to be done on the device when it ends, for debugging.
    pub fn new(profiler: &Arc<Recorder>, synchronous: bool) -> Self {
        Devices {
            profiler: profiler.clone(),
            synchronous,
            driver: OnceLock::new(),
            slots: [const { OnceLock::new() }; MAX_DEVICES],
            opening: Lock::default(),
            forked: Arc::default(),
            on_host: Lock::default(),
            notice: OnceLock::new(),
            functions: Functions::default(),
        }
    }

    /// The device of that number, opened now if it is not in use yet.
    #[inline]
    pub fn device(&self, id: i32) -> Result<&Arc<Device>> {
        match self.opened(id) {
            Some(device) if !self.forked.load(Ordering::Relaxed) => Ok(device),
            _ => self.open(id).map_err(|e| unavailable(id, &e)),
        }
    }

    /// The device of that number, if it is in use.
    #[inline]
    pub fn opened(&self, id: i32) -> Option<&Arc<Device>> {
        self.slots.get(usize::try_from(id).ok()?)?.get()
    }

    /// Waits for all work on the devices in use, and raises a fault that no wait has raised.
    pub fn wait_for_all(&self, poll: Poll<'_>) -> Result<()> {
        let mut first = Ok(());
        for device in self.slots.iter().filter_map(OnceLock::get) {
            if !self.forked.load(Ordering::Relaxed) {
                first = first.and(device.wait_for_all(poll));
            }
        }
        first
    }

    #[cold]
    fn open(&self, id: i32) -> Result<&Arc<Device>> {
        let _opening = self.opening.lock();
        let driver = self.open_driver()?;
        let count = count(driver)?;
        let slot = usize::try_from(id).ok().and_then(|at| self.slots.get(at));
        let Some(slot) = slot.filter(|_| id < count) else {
            return Err(Error::value(format!(
                "expected a number below {count}, the number of CUDA devices"
            )));
        };
        if let Some(device) = slot.get() {
            return Ok(device);
        }
        let made = Device::new(driver, id, &self.forked, &self.profiler, self.synchronous)?;
        Ok(slot.get_or_init(|| Arc::new(made)))
    }

    /// The driver. The caller holds `opening`.
    fn open_driver(&self) -> Result<&Arc<Driver>> {
        if self.forked.load(Ordering::Relaxed) {
            return Err(primary::forked());
        }
        if let Some(driver) = self.driver.get() {
            return Ok(driver);
        }
        let driver = Arc::new(Driver::open()?);
        Ok(self.driver.get_or_init(|| driver))
    }

    /// How many devices there are; an error if there is no driver.
    pub fn count(&self) -> Result<i32> {
        let _opening = self.opening.lock();
        count(self.open_driver()?)
    }

    /// The CUDA version of the driver, once a device was used: 12040 is 12.4.
    pub fn driver_version(&self) -> Option<i32> {
        self.driver.get().map(|driver| driver.version())
    }

    /// The device whose memory `address` is.
    pub fn device_at(&self, address: usize) -> Result<&Arc<Device>> {
        let (driver, mut number) = (
            {
                let _opening = self.opening.lock();
                self.open_driver()?
            },
            0 as c_int,
        );
        let place = (&mut number as *mut c_int).cast();
        // SAFETY: a place for the answer; the driver checks the address.
        let status =
            unsafe { (driver.pointer_get_attribute)(place, DEVICE_ORDINAL, address as Address) };
        driver.check("cuPointerGetAttribute", status).map_err(|_| {
            let got = format!("{address:#x}");
            Error::invalid("address", got, "memory of a CUDA device")
        })?;
        self.device(number)
    }

    /// Calls `notice` for every operator that runs on the host for the first time from now on.
    pub fn set_notice(&self, notice: Notice) {
        let _ = self.notice.set(notice);
    }

    /// Records that `operator` has no kernel for a call on a device and runs on the host.
    pub fn note_on_host(&self, operator: &str) -> Result<()> {
        {
            let mut known = self.on_host.lock();
            if known.contains(operator) {
                return Ok(());
            }
            known.insert(operator.to_owned());
        }
        self.notice.get().map_or(Ok(()), |notice| notice(operator))
    }

    /// Operators that have run on the host for arrays on a device, in alphabetical order.
    pub fn operators_on_host(&self) -> Vec<String> {
        self.on_host.lock().iter().cloned().collect()
    }

    /// Acquires the locks of all devices in use, to be held across a fork.
    pub fn before_fork(&self) -> HeldForFork<'_> {
        let mut held = vec![self.opening.hold(), self.on_host.hold(), self.functions.hold()];
        for device in self.slots.iter().filter_map(OnceLock::get) {
            held.extend(device.hold());
        }
        HeldForFork { devices: self, _held: held }
    }
}

fn count(driver: &Driver) -> Result<i32> {
    let mut count = 0;
    // SAFETY: a place for the answer.
    driver.check("cuDeviceGetCount", unsafe { (driver.device_get_count)(&mut count) })?;
    Ok(count)
}

/// `gpu(0) is not available: ...`, with what to install where there is no driver.
#[cold]
fn unavailable(id: i32, why: &Error) -> Error {
    let text = format!("{} is not available: {}", Context::gpu(id), why.message());
    let hint =
        if text.contains("no CUDA driver") { format!(" and {EXTRA}") } else { String::new() };
    Error::new(crate::error::ErrorKind::Execution, text + &hint)
}

/// The locks of [`Devices`], held across a fork.
pub struct HeldForFork<'a> {
    devices: &'a Devices,
    _held: Vec<Held<'a>>,
}

impl HeldForFork<'_> {
    /// In the child: what the parent has opened is of no use here.
    pub fn release_in_child(self) {
        if self.devices.driver.get().is_some() {
            self.devices.forked.store(true, Ordering::Relaxed);
        }
    }
}
