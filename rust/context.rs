//! Devices: which one an array lives on and an operation runs on.

use std::fmt;

/// The kind of a device. The discriminants are the numbers that files use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum DeviceType {
    Cpu = 1,
    Gpu = 2,
    CpuPinned = 3,
    CpuShared = 5,
}

/// One device: its kind and number. CPU numbers are logical only.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Context {
    pub device_type: DeviceType,
    pub device_id: i32,
}

impl Context {
    pub const fn cpu(device_id: i32) -> Self {
        Context { device_type: DeviceType::Cpu, device_id }
    }

    pub const fn gpu(device_id: i32) -> Self {
        Context { device_type: DeviceType::Gpu, device_id }
    }

    /// Does the host's memory back this device?
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
    pub const fn name(self) -> &'static str {
        match self {
            DeviceType::Cpu => "cpu",
            DeviceType::Gpu => "gpu",
            DeviceType::CpuPinned => "cpu_pinned",
            DeviceType::CpuShared => "cpu_shared",
        }
    }

    pub fn from_name(name: &str) -> Option<Self> {
        [DeviceType::Cpu, DeviceType::Gpu, DeviceType::CpuPinned, DeviceType::CpuShared]
            .into_iter()
            .find(|d| d.name() == name)
    }

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
