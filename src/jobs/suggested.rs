//! Groups of tools that look like the tools of a job.

use crate::mcp::tools::Tools;

/// Tools that look like those of a job.
#[derive(Debug, PartialEq, Eq)]
pub struct JobGroup<'t> {
    pub starts: Vec<&'t str>,
    pub status: &'t str,
    /// The argument of the status tool that takes the job's id.
    pub id_argument: &'t str,
    pub cancel: Option<&'t str>,
    pub result: Option<&'t str>,
}

/// Returns the groups that the names and the arguments of these tools suggest.
pub fn groups(_tools: &Tools) -> Vec<JobGroup<'_>> {
    Vec::new()
}
