//! A memory cgroup: a hard limit on what one process may use, as a container runtime sets it for a container.
//!
//! Making one needs rights that not every machine gives. Without them a bar runs without a limit.

use std::fs;
use std::path::{Path, PathBuf};

use crate::memory;

/// A cgroup of this bar's own. It is removed when it is dropped, so drop what runs in it first.
#[derive(Debug)]
pub(crate) struct MemoryLimit {
    folder: PathBuf,
    version: Version,
}

#[derive(Debug, Clone, Copy)]
enum Version {
    V1,
    V2,
}

impl MemoryLimit {
    /// A cgroup with this limit, or `None` where the machine does not let us make one.
    pub(crate) fn try_new(bytes: u64) -> Option<Self> {
        let name = format!("raincheck-bar-{}", std::process::id());
        let v1 = Path::new("/sys/fs/cgroup/memory").join(&name);
        let v2 = Path::new("/sys/fs/cgroup").join(&name);
        // A machine with version 1 also has the other folder, but no controllers in it.
        Self::make(v1, Version::V1, bytes).or_else(|| Self::make(v2, Version::V2, bytes))
    }

    fn make(folder: PathBuf, version: Version, bytes: u64) -> Option<Self> {
        fs::create_dir(&folder).ok()?;
        let made = Self { folder, version };
        let bytes = bytes.to_string();
        let set = match version {
            // The kernel counts socket buffers of version 1 apart, and only if they have a limit.
            Version::V1 => made
                .set("memory.limit_in_bytes", &bytes)
                .and_then(|()| made.set("memory.kmem.tcp.limit_in_bytes", &bytes)),
            Version::V2 => made.set("memory.max", &bytes),
        };
        set.ok().map(|()| made)
    }

    /// A process that writes its id here is limited from then on.
    pub(crate) fn processes(&self) -> PathBuf {
        self.folder.join("cgroup.procs")
    }

    /// The most that was in use at once, socket buffers of the kernel included. In version 1 this is the sum of two
    /// peaks, which is at least the peak of the sum.
    pub(crate) fn peak(&self) -> u64 {
        match self.version {
            Version::V1 => {
                self.read("memory.max_usage_in_bytes")
                    + self.read("memory.kmem.tcp.max_usage_in_bytes")
            }
            Version::V2 => self.read("memory.peak"),
        }
    }

    fn set(&self, file: &str, value: &str) -> std::io::Result<()> {
        fs::write(self.folder.join(file), value)
    }

    fn read(&self, file: &str) -> u64 {
        let text = fs::read_to_string(self.folder.join(file)).unwrap_or_default();
        // Kernels before 5.19 keep no peak in version 2: then there is none to tell.
        text.trim().parse().unwrap_or_default()
    }
}

impl Drop for MemoryLimit {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.folder);
    }
}

/// The peak of a process: by its cgroup if it has one, and by its resident memory.
pub(crate) fn peak(pid: u32, limit: Option<&MemoryLimit>) -> u64 {
    let resident = memory::peak(pid);
    limit.map_or(resident, |limit| limit.peak().max(resident))
}
