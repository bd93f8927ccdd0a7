//! R16: a rolling upgrade. Replicas of an earlier program and of this one share a Redis, and each that is killed comes back
//! as one or the other. The rules are those of R2. Beside it, clients that are cut come back to their calls on replicas of
//! both programs.

use std::path::PathBuf;

use futures_util::future::join;

use super::{held, r2};
use crate::rig::replica;
use crate::{Asked, Report};

/// Names the earlier program. `tests/bars/r16` builds it.
const EARLIER: &str = "RAINCHECK_EARLIER_BIN";

pub(super) async fn run(asked: Asked, report: &mut Report) {
    let Some(earlier) = std::env::var_os(EARLIER) else {
        return report.breaks(format!("{EARLIER} names no program"));
    };
    let programs = [PathBuf::from(earlier), replica::program()];
    let held = held::mixed(asked, &programs[0]);
    let ((), held) = join(r2::kill_in_turns(asked, report, &programs), held).await;
    report.join(held);
}
