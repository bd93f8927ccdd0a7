//! What the error of a call says of an HTTP refusal, or of an answer that is no answer of MCP.

use raincheck::mcp::error::Failure;
use raincheck::upstream::Credentials;

use super::*;

const NGINX: &str = "<html>\r\n<head><title>413 Request Entity Too Large</title></head>\r\n<body>\r\n<center><h1>413 \
                     Request Entity Too Large</h1></center>\r\n<hr><center>nginx</center>\r\n</body>\r\n</html>";

async fn failure(server: &Server, era: Era) -> Failure {
    let token = HeaderValue::from_static("Bearer hunter");
    let request = call("t").with_credentials(Some(Credentials::from(token)));
    let mut exchange = upstream(server).begin(era, request);
    loop {
        if let Event::Failed(failure) = next(&mut exchange).await {
            return failure;
        }
    }
}

#[tokio::test]
async fn a_refusal_says_what_it_was() {
    let many = "x: y\r\n".repeat(101);
    let many = format!("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n{many}\r\n");
    let unknown = b"HTTP/1.1 524 A Timeout Occurred\r\ncontent-length: 0\r\n\r\n";
    for era in BOTH {
        for (reply, expected) in [
            (
                Reply::json(413, NGINX).header("content-type", "text/html"),
                "HTTP error: HTTP 413 Payload Too Large: 413 Request Entity Too Large nginx; it did not run, and the \
                 server would refuse it the same way",
            ),
            (
                Reply::json(400, "hunter is no token, nor is Bearer hunter at 10.0.0.7:80"),
                "HTTP error: HTTP 400 Bad Request: [...] is no token, nor is [...] at [address]; it did not run, and \
                 the server would refuse it the same way",
            ),
            (
                Reply::json(404, "<h1>Not here</h1>"),
                "HTTP error: HTTP 404 Not Found: Not here; it did not run, and the server would refuse it the same way",
            ),
            (
                Reply::json(501, ""),
                "HTTP error: HTTP 501 Not Implemented; it may have run, and the server would refuse it the same way",
            ),
            (
                Reply::json(502, "upstream \u{1b}[31mgone"),
                "HTTP error: HTTP 502 Bad Gateway: upstream [31mgone; it may have run, look before calling again",
            ),
            (
                Reply::raw(unknown),
                "HTTP error: HTTP 524 A Timeout Occurred; it may have run, look before calling again",
            ),
            (
                Reply::json(301, "").header("location", "http://10.0.0.7/s3cret"),
                "HTTP error: HTTP 301 Moved Permanently; it may have run, and the server would refuse it the same way",
            ),
            (
                Reply::json(200, "<p>Sign in, hunter</p>").header("content-type", "text/html"),
                "valid MCP message: HTTP 200 OK (text/html): Sign in, [...]; it may have run, look before calling again",
            ),
            (
                Reply::raw(many.as_bytes()),
                "than allowed: its head has more than 100 headers, or more than 64 KiB; it may have run, look before \
                 calling again",
            ),
        ] {
            let server = Server::start(reply.clone()).await;
            server.without_sessions();
            let failure = failure(&server, era).await;
            let message = failure.message();
            assert!(message.ends_with(expected), "{era:?} {message} {reply:?}");
            let data = failure.to_error().data.unwrap();
            let has_status = failure.detail.is_some_and(|detail| detail.status().is_some());
            assert_eq!(data.contains("io.raincheck/status"), has_status);
        }
    }
}

/// A page of any size is read to its first words only, and in bounded time.
#[tokio::test]
async fn a_long_page_is_cut() {
    let page = format!("<p>{}", "word ".repeat(100_000));
    for era in BOTH {
        let server = Server::start(Reply::json(500, &page)).await;
        server.without_sessions();
        let message = failure(&server, era).await.message();
        assert!(message.len() < 400 && message.contains("word word"), "{message}");
    }
}
