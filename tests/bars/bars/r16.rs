//! R16: a rolling upgrade. Replicas of an earlier program and of this one share a Redis, and each that is killed comes back
//! as one or the other. The rules are those of R2.

use std::path::PathBuf;

use super::r2;
use crate::rig::replica;
use crate::{Asked, Report};

/// Names the earlier program. `tests/bars/r16` builds it.
const EARLIER: &str = "RAINCHECK_EARLIER_BIN";

pub(super) async fn run(asked: Asked, report: &mut Report) {
    let Some(earlier) = std::env::var_os(EARLIER) else {
        return report.breaks(format!("{EARLIER} names no program"));
    };
    let programs = [PathBuf::from(earlier), replica::program()];
    r2::kill_in_turns(asked, report, &programs).await;
}
