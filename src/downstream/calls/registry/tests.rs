//! Ids, bounds and questions of the calls in the registry.

use super::*;
use crate::mcp::json::raw;
use crate::task::id::Caller;

fn session(name: &str) -> SessionKey {
    SessionKey::of(&Caller::from_bytes([1; 16]), name)
}

fn id(text: &str) -> Box<RawValue> {
    raw(text.to_owned()).unwrap()
}

#[test]
fn all_sessions_together_are_bounded() {
    let calls = CallRegistry::new(2);
    let enter = |kind, name| calls.enter(kind, session(name), "1");
    let one = enter(CallKind::Piped, "a").unwrap();
    let refused = enter(CallKind::Piped, "a").unwrap_err();
    assert_eq!(refused, EnterError::SameId);
    let _two = enter(CallKind::Joined, "a").unwrap();
    let refused = enter(CallKind::Carried, "b").unwrap_err();
    assert_eq!(refused, EnterError::Full);
    let _resumable = enter(CallKind::Resumable, "b").unwrap();
    drop(one);
    let three = enter(CallKind::Carried, "b").unwrap();
    assert_eq!(
        calls.cancel(session("b"), "1", CancelCause::Unwanted),
        Cancelled::Carried
    );
    drop(three);
    assert_eq!(
        calls.cancel(session("b"), "1", CancelCause::Unwanted),
        Cancelled::AtServer
    );
    assert_eq!(
        calls.cancel(session("b"), "\"1\"", CancelCause::Unwanted),
        Cancelled::Nothing
    );
}

#[test]
fn one_session_at_a_modern_server_is_bounded() {
    let calls = CallRegistry::default();
    let enter =
        |name, id: usize| calls.enter(CallKind::AtModernServer, session(name), &id.to_string());
    let of_session = (0..AT_MODERN_SERVER_MAX).map(|id| enter("a", id).unwrap());
    let of_session: Vec<_> = of_session.collect();
    assert_eq!(enter("a", usize::MAX).unwrap_err(), EnterError::Full);
    let _other = enter("b", 0).unwrap();
    // A call leaves once, however often it is said.
    of_session[0].leave();
    drop(of_session);
    assert_eq!(calls.calls().count, 1);
    assert_eq!(calls.calls().of_sessions.len(), 1);
}

#[test]
fn a_cancel_reaches_all_that_were_sent_with_the_id() {
    let calls = CallRegistry::default();
    let enter = || calls.enter(CallKind::Joined, session("a"), "1").unwrap();
    let (one, two, three) = (enter(), enter(), enter());
    drop(two);
    assert_eq!(
        calls.cancel(session("b"), "1", CancelCause::Unwanted),
        Cancelled::Nothing
    );
    assert!(!one.is_cancelled());
    assert_eq!(
        calls.cancel(session("a"), "1", CancelCause::Unwanted),
        Cancelled::Carried
    );
    assert!(one.is_cancelled() && three.is_cancelled());
}

#[test]
fn a_cancel_reaches_none_of_several_calls_with_the_id() {
    let calls = CallRegistry::default();
    let enter = |what| {
        let entry = calls.enter(CallKind::Carried, session("a"), "1").unwrap();
        (entry.is_call(Digest::of(&[what]), None), entry)
    };
    let ((is_first, one), (is_other, other)) = (enter("one"), enter("other"));
    assert!(is_first && is_other);
    assert!(!enter("one").0, "it was sent twice");
    let cancel = || calls.cancel(session("a"), "1", CancelCause::Unwanted);
    assert_eq!(cancel(), Cancelled::Carried);
    assert!(!one.is_cancelled() && !other.is_cancelled());
    drop(other);
    let resumable = calls.enter(CallKind::Resumable, session("a"), "1").unwrap();
    assert_eq!(cancel(), Cancelled::Carried);
    assert!(one.is_cancelled() && resumable.is_cancelled());
}

#[test]
fn a_cancelled_call_takes_nothing_that_came_after_it_under_its_id() {
    let calls = CallRegistry::default();
    let enter = || calls.enter(CallKind::Piped, session("a"), "1");
    let older = enter().unwrap();
    assert_eq!(
        calls.cancel(session("a"), "1", CancelCause::Unwanted),
        Cancelled::Carried
    );
    let newer = enter().unwrap();
    drop(older);
    assert_eq!(enter().unwrap_err(), EnterError::SameId);
    assert!(!newer.is_cancelled());
    calls.end(session("a"));
    assert!(newer.is_cancelled());
}

#[test]
fn an_answer_finds_the_question_of_its_session_once() {
    let calls = CallRegistry::default();
    let enter = |name| calls.enter(CallKind::Carried, session(name), "1").unwrap();
    let (one, other) = (enter("a"), enter("b"));
    let ask = |call: &CallEntry| {
        let (sender, _) = oneshot::channel();
        call.asks("\"q/1\"", AnswerPath::Session(sender));
    };
    ask(&one);
    ask(&other);
    assert!(calls.take_question(session("c"), &id("\"q/1\"")).is_none());
    let (asked, _) = calls.take_question(session("a"), &id("\"q\\/1\"")).unwrap();
    assert_eq!(&*asked, "\"q/1\"");
    assert!(calls.take_question(session("a"), &id("\"q/1\"")).is_none());
    assert!(calls.others_ask(session("a"), "q/1"));
    drop(other);
    assert!(!calls.others_ask(session("a"), "q/1"));
    assert!(calls.take_question(session("b"), &id("\"q/1\"")).is_none());
}

#[tokio::test]
async fn a_second_cancel_is_not_for_the_server_until_the_id_is_used_again() {
    let calls = CallRegistry::default();
    let (a, clock) = (session("a"), CancelCause::Clock);
    let call = calls.enter(CallKind::Resumable, a, "1").unwrap();
    assert_eq!(calls.cancel(a, "1", clock), Cancelled::Carried);
    drop(call);
    let aborted = CancelCause::Unwanted;
    assert_eq!(calls.cancel(a, "1", aborted), Cancelled::Carried);
    assert_eq!(calls.cancel(session("b"), "1", aborted), Cancelled::Nothing);
    let digest = || Digest::of(&["x"]);
    calls.given_up_are_kept((a, "1"), digest).await;
    assert_eq!(calls.cancel(a, "1", aborted), Cancelled::Nothing);
}
