//! One contract for every store, and what is special about each.
#![expect(
    clippy::disallowed_methods,
    reason = "tests own their tasks and environment"
)]

#[path = "support/authority.rs"]
mod authority;
#[path = "store/commits.rs"]
mod commits;
#[path = "support/directory.rs"]
mod directory;
#[path = "store/embedded_files.rs"]
mod embedded_files;
#[path = "store/embedded.rs"]
mod embedded_only;
#[path = "support/eventually.rs"]
mod eventually;
#[path = "support/fleet.rs"]
mod fleet;
#[path = "store/history.rs"]
mod history;
#[path = "store/kept.rs"]
mod kept;
#[path = "store/notes.rs"]
mod notes;
#[path = "support/ports.rs"]
mod ports;
#[path = "store/redis_away.rs"]
mod redis_away;
#[path = "store/redis_fleet.rs"]
mod redis_fleet;
#[path = "store/redis_notes.rs"]
mod redis_notes;
#[path = "store/redis.rs"]
mod redis_only;
#[path = "support/redis.rs"]
mod redis_server;
#[path = "store/redis_setup.rs"]
mod redis_setup;
#[path = "store/redis_tls.rs"]
mod redis_tls;
#[path = "store/redis_wait.rs"]
mod redis_wait;
#[path = "store/rig.rs"]
mod rig;
#[path = "store/sealed.rs"]
mod sealed_only;
#[path = "support/tls.rs"]
mod tls_server;

/// The rules of the contract, handed to `$then` behind what else it takes.
macro_rules! with_rules {
    ($then:ident! { $($more:tt)* }) => {
        $then! { $($more)*
            commits::a_created_task_is_found,
            commits::an_unknown_task_is_not_found,
            commits::a_create_sent_twice_is_done_once,
            commits::a_create_over_anothers_task_conflicts,
            commits::a_stale_revision_conflicts_and_tells_what_stands,
            commits::the_same_revision_under_another_nonce_conflicts,
            commits::an_update_sent_twice_is_done_once,
            commits::an_update_of_an_absent_task_is_gone_and_leaves_nothing,
            commits::an_update_of_an_expired_task_is_gone_and_leaves_nothing,
            commits::racers_never_lose_a_commit,
            commits::writers_of_many_tasks_do_not_meet,
            commits::changes_are_seen_in_order_and_creations_are_not,
            commits::what_is_told_is_seen_and_changes_nothing,
            commits::a_record_may_be_empty_or_large_and_of_any_bytes,
            history::an_end_has_one_entry,
            history::entries_come_in_order_behind_a_place,
            history::the_last_entries_stay,
            history::entries_are_found_before_and_after_they_are_put_together,
            history::two_replicas_put_entries_together_once,
            history::new_entries_come_behind_those_that_expired,
            history::old_entries_go,
            kept::indexes_change_with_the_commit_and_not_without,
            kept::staying_in_the_same_index_keeps_the_task_there,
            kept::due_is_most_overdue_first_and_bounded,
            kept::the_request_is_written_with_create_and_stays,
            kept::a_request_may_come_with_a_later_write_and_stays,
            kept::results_are_kept_by_fence,
            kept::everything_of_a_task_expires,
            kept::an_update_keeps_the_expiry_of_record_and_request,
            kept::a_lease_that_ended_is_reported_and_a_renewed_one_is_not,
            kept::a_retired_incarnation_is_not_reported,
            kept::a_forgotten_task_leaves_the_index,
            kept::a_forgotten_task_stays_and_may_come_back,
            kept::the_caller_key_is_stable,
            notes::a_claim_stands_and_others_are_told_what_stands,
            notes::of_racing_claims_exactly_one_wins,
            notes::a_note_is_put_found_and_removed,
            notes::a_note_is_replaced_where_it_is_what_was_read,
            notes::of_racing_changes_none_is_lost,
            notes::a_note_may_be_large,
            notes::kinds_never_meet,
            notes::a_note_is_gone_when_it_expires_and_its_name_is_free,
            notes::a_log_is_read_in_order_behind_a_number,
            notes::a_log_keeps_the_newest_entries,
            notes::a_log_forgets_what_it_is_told_to,
            notes::a_log_takes_no_entry_of_an_earlier_fence,
            notes::an_append_moves_the_expiry_of_the_whole_log,
            notes::an_entry_may_be_large,
            notes::an_append_is_told_of_while_another_replica_reads,
            notes::a_caller_is_told_of_its_listed_tasks_only,
            notes::a_task_that_expired_is_not_listed,
        }
    };
}

/// A test for each rule; `$open` makes a fresh store for each.
macro_rules! contract_tests {
    ($store:ident, $open:expr; $($topic:ident::$rule:ident,)*) => {
        mod $store {
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $rule() {
                    let rig = $open;
                    crate::$topic::$rule(&rig).await;
                }
            )*
        }
    };
}

/// All rules in one test, in a namespace each: where starting the servers takes longer than the
/// rules do.
macro_rules! contract_test {
    ($name:ident, $fleet:ty, $looks:expr; $($topic:ident::$rule:ident,)*) => {
        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $name() {
            let fleet = <$fleet>::start();
            $(
                let rig = crate::rig::Rig::redis_at(&fleet.url(), stringify!($rule), $looks).await;
                println!("{}", stringify!($rule));
                crate::$topic::$rule(&rig).await;
            )*
        }
    };
}

with_rules!(contract_tests! { memory, crate::rig::Rig::memory(); });
with_rules!(contract_tests! { embedded, crate::rig::Rig::embedded(); });
with_rules!(contract_tests! { embedded_in_memory, crate::rig::Rig::embedded_in_memory(); });
with_rules!(contract_tests! { sealed, crate::rig::Rig::sealed().await; });
with_rules!(contract_tests! { redis, crate::rig::Rig::redis().await; });
with_rules!(contract_test! { the_documented_access_list_is_enough, redis_setup::Tight, 1; });
with_rules!(contract_test! { a_cluster_keeps_the_contract, fleet::Cluster, 8; });
with_rules!(contract_test! { a_primary_behind_sentinels_keeps_the_contract, fleet::Sentinels, 1; });
