//! placeholder until merged
use super::*;
use crate::mcp::version::Era;
#[derive(Debug)]
pub struct Upstream;
#[derive(Debug)]
pub struct Discovered {
    pub capabilities: Box<RawValue>,
    pub server_info: Option<Box<RawValue>>,
    pub instructions: Option<Box<RawValue>>,
}
impl Upstream {
    pub fn begin(&self, _era: Era, _outgoing: Outgoing) -> Exchange {
        std::process::abort()
    }
    pub fn last_discovered(&self) -> Option<Arc<Discovered>> {
        None
    }
    pub fn known_era(&self) -> Option<Era> {
        None
    }
}
