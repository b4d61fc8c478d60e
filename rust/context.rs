//! Devices: which one an array lives on and an operation runs on.

use std::fmt;

/// The kind of a device. The discriminants are the numbers that files use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum DeviceType {
    /// The host.
    Cpu = 1,
    /// A CUDA device.
    Gpu = 2,
    /// Memory of the host that a GPU can reach; here as the host's.
    CpuPinned = 3,
    /// Memory of the host that processes share; here as the host's.
    CpuShared = 5,
}

/// One device: its kind and number. CPU numbers are logical only.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Context {
    /// Its kind.
    pub device_type: DeviceType,
    /// Its number among those of the kind.
    pub device_id: i32,
}

impl Context {
    /// A device of the host.
    pub const fn cpu(device_id: i32) -> Self {
        Context { device_type: DeviceType::Cpu, device_id }
    }

    /// A GPU.
    pub const fn gpu(device_id: i32) -> Self {
        Context { device_type: DeviceType::Gpu, device_id }
    }

    /// Returns true if one operation can use arrays of both devices: all kinds of host memory are
    /// one.
    #[inline]
    pub fn shares_memory(self, other: Context) -> bool {
        self == other || self.is_host() && other.is_host()
    }

    /// Returns true if host memory backs this device.
    #[inline]
    pub const fn is_host(self) -> bool {
        !matches!(self.device_type, DeviceType::Gpu)
    }
}

impl Default for Context {
    fn default() -> Self {
        Context::cpu(0)
    }
}

impl DeviceType {
    /// MXNet's name of the kind.
    pub const fn name(self) -> &'static str {
        match self {
            DeviceType::Cpu => "cpu",
            DeviceType::Gpu => "gpu",
            DeviceType::CpuPinned => "cpu_pinned",
            DeviceType::CpuShared => "cpu_shared",
        }
    }

    /// The kind of that name.
    pub fn from_name(name: &str) -> Option<Self> {
        [DeviceType::Cpu, DeviceType::Gpu, DeviceType::CpuPinned, DeviceType::CpuShared]
            .into_iter()
            .find(|d| d.name() == name)
    }

    /// The kind of that number.
    pub fn from_id(id: i32) -> Option<Self> {
        [DeviceType::Cpu, DeviceType::Gpu, DeviceType::CpuPinned, DeviceType::CpuShared]
            .into_iter()
            .find(|d| *d as u8 as i32 == id)
    }
}

impl fmt::Display for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}({})", self.device_type.name(), self.device_id)
    }
}
