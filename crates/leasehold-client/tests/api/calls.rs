//! One call each, against a server.

use std::time::Duration;

use leasehold_client::http::{Error, Handover, HandoverTerms};
use leasehold_client::{Fence, HttpClient, LeaseId, Retry};
use leasehold_core::Reason;
use leasehold_core::lease::LossReason;

use crate::server::{TestServer, client_with, room};

fn lease_id(number: u8) -> LeaseId {
    LeaseId::from_random([number; 16])
}

fn fence(number: u64) -> Fence {
    Fence::new(number).unwrap()
}

fn reason(text: &str) -> Reason {
    Reason::parse(text).unwrap()
}

#[tokio::test]
async fn a_lock_is_taken_kept_seen_and_given_back() {
    let server = TestServer::start().await;
    let (anna, ben) = (server.client("anna"), server.client("ben"));
    let (room, id) = (room("minutes"), lease_id(1));
    let grant = anna.lock(&room, Some(&id)).await.unwrap();
    assert_eq!((grant.lease_id.0.clone(), grant.lock.holder.name.as_str()), (id.reveal(), "Anna"));
    let again = anna.lock(&room, Some(&id)).await.unwrap();
    assert_eq!(again.lock.fence, grant.lock.fence, "repeating it is safe");

    let Err(Error::Held(held)) = ben.lock(&room, None).await else { panic!("two holders") };
    assert_eq!((held.holder.id.as_str(), held.fence, held.same_user), ("anna", grant.lock.fence, false));
    assert!(matches!(ben.renew(&room, None).await, Err(Error::NotHolder { .. })));
    assert!(matches!(ben.unlock(&room, Some(&lease_id(9))).await, Err(Error::NotHolder { .. })));

    assert_eq!(anna.renew(&room, Some(&id)).await.unwrap().fence, grant.lock.fence);
    let many = anna.renew_many([(&room, &id), (&room, &lease_id(9))]).await.unwrap();
    assert_eq!(many.locks.iter().map(|lock| lock.status).collect::<Vec<_>>(), [200, 403]);

    let seen = ben.state_if_changed(&room, None, None).await.unwrap().unwrap();
    assert!(seen.state.locked && seen.etag.is_some());
    assert!(anna.state(&room, Some(&id)).await.unwrap().lock.unwrap().yours);
    let page = ben.list("min", None, Some(10)).await.unwrap();
    assert_eq!(page.documents.len(), 1);
    assert!(ben.check(&room, fence(grant.lock.fence)).await.unwrap().current);

    anna.unlock(&room, Some(&id)).await.unwrap();
    assert!(matches!(anna.unlock(&room, Some(&id)).await, Err(Error::LockNotFound { .. })));
    assert!(!ben.check(&room, fence(grant.lock.fence)).await.unwrap().current);
    let over = anna.lock(&room, Some(&id)).await.unwrap_err();
    assert!(matches!(over, Error::LeaseOver { because: LossReason::Released, .. }), "{over:?}");
    server.stop().await;
}

#[tokio::test]
async fn an_unchanged_state_is_not_sent_again() {
    let server = TestServer::start().await;
    let (anna, room) = (server.client("anna"), room("minutes"));
    let first = anna.state_if_changed(&room, None, None).await.unwrap().unwrap();
    assert!(anna.state_if_changed(&room, None, first.etag.as_deref()).await.unwrap().is_none());
    anna.lock(&room, None).await.unwrap();
    assert!(anna.state_if_changed(&room, None, first.etag.as_deref()).await.unwrap().unwrap().state.locked);
}

#[tokio::test]
async fn a_page_leaves_softly_and_comes_back_under_another_lease_id() {
    let server = TestServer::start().await;
    let (anna, room) = (server.client("anna"), room("minutes"));
    let grant = anna.lock(&room, Some(&lease_id(1))).await.unwrap();
    assert!(anna.soft_release(&room, &lease_id(1)).await.unwrap().expires_in_ms <= 5_000);
    let back = anna.resume(&room, &lease_id(1), &lease_id(2)).await.unwrap();
    assert_eq!((back.lock.fence, back.lease_id.0), (grant.lock.fence, lease_id(2).reveal()));
    assert!(matches!(anna.renew(&room, Some(&lease_id(1))).await, Err(Error::NotHolder { .. })));
}

#[tokio::test]
async fn taking_from_others_needs_the_permission_and_the_fence() {
    let server = TestServer::start().await;
    let (anna, ben, boss) = (server.client("anna"), server.client("ben"), server.client("boss"));
    let room = room("minutes");
    let seen = fence(anna.lock(&room, None).await.unwrap().lock.fence);
    let refused = ben.take_over(&room, seen, &reason("mine"), None).await.unwrap_err();
    assert!(matches!(refused, Error::NotAllowed { .. }), "{refused:?}");
    let taken = boss.take_over(&room, seen, &reason("deadline"), None).await.unwrap();
    assert!(taken.lock.fence > seen.get());
    assert!(matches!(
        boss.take_over(&room, seen, &reason("again"), Some(&lease_id(3))).await,
        Err(Error::Held(_))
    ));
    boss.force_release(&room, fence(taken.lock.fence), &reason("done")).await.unwrap();
    let none_left = boss.force_release(&room, fence(taken.lock.fence), &reason("done")).await;
    assert!(matches!(none_left, Err(Error::LockNotFound { .. })));
}

#[tokio::test]
async fn a_handover_is_asked_for_told_and_answered() {
    let server = TestServer::start().await;
    let (anna, ben, cora) = (server.client("anna"), server.client("ben"), server.client("cora"));
    let (room, id, asking) = (room("minutes"), lease_id(1), lease_id(2));
    let seen = fence(anna.lock(&room, Some(&id)).await.unwrap().lock.fence);
    let terms = HandoverTerms::default();
    let asked = ben.request_handover(&room, seen, terms, Some(&asking)).await.unwrap();
    let Handover::Asked(asked) = asked else { panic!("{asked:?}") };
    let another = cora.request_handover(&room, seen, terms, None).await.unwrap_err();
    assert!(matches!(another, Error::RequestedByAnother { held: Some(_) }), "{another:?}");
    let request = anna.renew(&room, Some(&id)).await.unwrap().request.unwrap();
    assert_eq!((request.id, request.by.name.as_str(), request.ends_in_ms), (asked.request.id, "Ben", None));
    assert!(anna.confirm_request(&room, Some(&id), request.id).await.unwrap().ends_in_ms > 0);
    assert!(matches!(anna.confirm_request(&room, Some(&id), 99).await, Err(Error::NoRequest)));
    assert!(anna.answer_request(&room, Some(&id), request.id, true).await.unwrap().handed_over);
    let granted = ben.request_handover(&room, seen, terms, Some(&asking)).await.unwrap();
    assert!(matches!(granted, Handover::Granted(_)), "{granted:?}");
    cora.withdraw_request(&room, &lease_id(7)).await.unwrap();
}

#[tokio::test]
async fn a_ticket_is_given_and_hidden() {
    let server = TestServer::start().await;
    let ticket = server.client("anna").ticket().await.unwrap();
    assert!(!ticket.ticket.0.is_empty() && !format!("{ticket:?}").contains(&ticket.ticket.0));
}

#[tokio::test]
async fn a_bad_token_is_refused_in_words_and_a_new_one_is_used_at_once() {
    let server = TestServer::start().await;
    let client = client_with(server.address, "no-token-at-all");
    let error = client.state(&room("minutes"), None).await.unwrap_err();
    assert!(matches!(error, Error::Unauthenticated { .. }) && error.retry() == Retry::No, "{error:?}");
    assert!(!error.to_string().contains("no-token-at-all"), "{error}");
    let clone = client.clone();
    client.set_token(&crate::server::token("anna", Duration::from_secs(60))).unwrap();
    clone.state(&room("minutes"), None).await.unwrap();
}

#[tokio::test]
async fn a_server_that_is_not_there_is_told_apart_from_one_that_does_not_answer() {
    let nobody = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let silent = nobody.local_addr().unwrap();
    let at = |address: std::net::SocketAddr| {
        HttpClient::at(format!("http://{address}")).timeout(Duration::from_millis(200)).build().unwrap()
    };
    // It listens, and never says anything.
    let error = at(silent).state(&room("minutes"), None).await.unwrap_err();
    assert!(matches!(error, Error::Unavailable { retry: Retry::Unknown, .. }), "{error:?}");
    drop(nobody);
    let error = at(silent).state(&room("minutes"), None).await.unwrap_err();
    assert!(matches!(error, Error::Unavailable { retry: Retry::Safe, .. }), "{error:?}");
}

#[tokio::test]
async fn a_redirect_is_not_followed() {
    use axum::response::Redirect;
    let app = axum::Router::new().fallback(async || Redirect::temporary("http://127.0.0.1:9/elsewhere"));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, app).await });
    let error = client_with(address, "t").lock(&room("minutes"), None).await.unwrap_err();
    assert!(matches!(error, Error::Unavailable { retry: Retry::No, .. }), "{error:?}");
    assert!(error.to_string().contains("redirect"), "{error}");
}
