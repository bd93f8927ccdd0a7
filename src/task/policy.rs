//! placeholder until merged
pub fn poll_interval_at(base_ms: u64, age_ms: u64) -> u64 {
    let _ = age_ms;
    base_ms
}
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InputWhen {
    InTask,
    BeforeTask,
}
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Plan {
    Refuse,
    Held,
    Auto { window_ms: u64, input: InputWhen },
    Always { input: InputWhen },
}
#[derive(Debug, Clone)]
pub struct Rule {
    pub grace_window_ms: u64,
    pub max_duration_ms: u64,
    pub poll_interval_ms: u64,
    pub input_timeout_ms: Option<u64>,
    pub result_bytes_max: u64,
}
impl Rule {
    pub fn ttl_ms(&self) -> u64 {
        0
    }
}
impl Default for Rule {
    fn default() -> Self {
        unimplemented!()
    }
}
#[derive(Debug)]
pub struct Rules(Rule);
impl Rules {
    pub fn for_tool(&self, _n: &str) -> (&Rule, Option<usize>) {
        (&self.0, None)
    }
}
pub fn plan(_rule: &Rule, _d: bool, _r: bool) -> Plan {
    Plan::Held
}
