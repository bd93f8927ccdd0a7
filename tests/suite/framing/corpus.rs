//! Requests that two readers could cut apart in two places, as they are known from attacks on chains of proxies. In
//! one of its readings each holds a second request with a canary; that one never reaches the server.

use std::fmt::Write as _;

/// Header lines, from the length of the message and of the message and the canary.
type Lines = dyn Fn(usize, usize) -> String;

/// What one way through raincheck wants of a request: header lines and a message.
#[derive(Debug, Clone)]
pub(super) struct Way {
    pub(super) headers: String,
    pub(super) message: String,
}

impl Way {
    pub(super) fn modern() -> Self {
        let meta = r#""_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}"#;
        Self {
            headers: "MCP-Protocol-Version: 2026-07-28\r\nMcp-Method: tools/list\r\n".into(),
            message: format!(
                r#"{{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{{{meta}}}}}"#
            ),
        }
    }

    /// Of a server without sessions.
    pub(super) fn legacy() -> Self {
        Self {
            headers: String::new(),
            message: r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#.into(),
        }
    }

    pub(super) fn session() -> Self {
        Self {
            headers: "Mcp-Session-Id: s\r\nMCP-Protocol-Version: 2025-11-25\r\n".into(),
            ..Self::legacy()
        }
    }

    /// A whole request with further header lines.
    pub(super) fn post(&self, lines: &str) -> String {
        let length = self.message.len();
        self.with(
            "POST /mcp HTTP/1.1",
            &format!("{lines}Content-Length: {length}\r\n"),
        ) + &self.message
    }

    fn with(&self, first: &str, lines: &str) -> String {
        format!(
            "{first}\r\nHost: localhost\r\nContent-Type: application/json\r\n\
             Accept: application/json, text/event-stream\r\n{}{lines}\r\n",
            self.headers
        )
    }

    /// The second request.
    fn canary(&self) -> String {
        self.post("X-Canary: 1\r\n")
    }

    /// The message and the canary, of the first of which a head with these lines may say the length.
    fn lengths(&self, lines: impl Fn(usize, usize) -> String) -> String {
        let both = format!("{}{}", self.message, self.canary());
        self.with("POST /mcp HTTP/1.1", &lines(self.message.len(), both.len())) + &both
    }

    /// The message as a chunk, then what may be one more or a request.
    pub(super) fn chunked(&self, lines: &str) -> String {
        let chunk = format!("{:x}\r\n{}\r\n0\r\n\r\n", self.message.len(), self.message);
        self.with("POST /mcp HTTP/1.1", lines) + &chunk + &self.canary()
    }

    /// Chunks as they are written.
    fn chunks(&self, chunks: &str) -> String {
        let head = self.with("POST /mcp HTTP/1.1", "Transfer-Encoding: chunked\r\n");
        head + chunks + &self.canary()
    }

    #[expect(clippy::too_many_lines, reason = "it is one table")]
    fn about_lengths(&self, all: &mut Vec<(String, String)>) {
        let table: [(&str, &Lines); 18] = [
            ("two lengths", &|a, b| {
                format!("Content-Length: {a}\r\nContent-Length: {b}\r\n")
            }),
            ("two lengths, the long one first", &|a, b| {
                format!("Content-Length: {b}\r\nContent-Length: {a}\r\n")
            }),
            ("a list of lengths", &|a, b| {
                format!("Content-Length: {a}, {b}\r\n")
            }),
            ("a sign", &|_, b| format!("Content-Length: +{b}\r\n")),
            ("less than nothing", &|_, _| "Content-Length: -1\r\n".into()),
            ("hexadecimal", &|_, b| {
                format!("Content-Length: 0x{b:x}\r\n")
            }),
            ("an exponent", &|_, _| "Content-Length: 1e2\r\n".into()),
            ("an overflow", &|_, _| {
                "Content-Length: 18446744073709551616\r\n".into()
            }),
            ("the largest length", &|_, _| {
                "Content-Length: 18446744073709551615\r\n".into()
            }),
            ("an empty length", &|_, _| "Content-Length: \r\n".into()),
            ("a vertical tab", &|_, b| {
                format!("Content-Length: \x0b{b}\r\n")
            }),
            ("a space before the colon", &|_, b| {
                format!("Content-Length : {b}\r\n")
            }),
            ("a folded line", &|_, b| {
                format!("X: y\r\n Content-Length: {b}\r\n")
            }),
            ("a bare CR before", &|a, b| {
                format!("X: y\rContent-Length: {b}\r\nContent-Length: {a}\r\n")
            }),
            ("a NUL in a value", &|_, b| {
                format!("X: y\0\r\nContent-Length: {b}\r\n")
            }),
            ("a NUL in a name", &|_, b| {
                format!("X\0: y\r\nContent-Length: {b}\r\n")
            }),
            ("a length that belongs to the connection", &|_, b| {
                format!("Connection: content-length\r\nContent-Length: {b}\r\n")
            }),
            ("an underscore", &|_, b| {
                format!("Content_Length: 0\r\nContent-Length: {b}\r\n")
            }),
        ];
        for (name, lines) in table {
            all.push((name.to_owned(), self.lengths(lines)));
        }
        let head = |lines: &str| self.lengths(|_, b| format!("{lines}Content-Length: {b}\r\n"));
        all.push(("bare LF".into(), head("").replace("\r\n", "\n")));
        all.push(("bare CR".into(), head("").replace("\r\n", "\r")));
        all.push((
            "a line before the request".into(),
            format!("\r\n\r\n{}", head("")),
        ));
        all.push(("100-continue".into(), head("Expect: 100-continue\r\n")));
        all.push(("another expectation".into(), head("Expect: 200-ok\r\n")));
        all.push((
            "an override".into(),
            head("X-HTTP-Method-Override: GET\r\n"),
        ));
        let tabs = head("").replacen("POST /mcp HTTP/1.1", "POST\t/mcp\tHTTP/1.1", 1);
        all.push(("tabs in the first line".into(), tabs));
        let old = head("Connection: keep-alive\r\n").replacen("HTTP/1.1", "HTTP/1.0", 1);
        all.push(("HTTP/1.0".into(), old));
        for version in ["HTTP/1.2", "HTTP/2.0", "HTTP/9", "ICAP/1.1", ""] {
            let other = head("").replacen("HTTP/1.1", version, 1);
            all.push((format!("version {version:?}"), other));
        }
    }

    #[expect(clippy::too_many_lines, reason = "it is one table")]
    fn about_codings(&self, all: &mut Vec<(String, String)>) {
        let whole = self.message.len() + self.canary().len() + 64;
        for coding in [
            "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n",
            "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n",
            "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n",
            "Transfer-Encoding: identity\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n",
            "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n",
            "Transfer-Encoding: xchunked\r\n",
            "Transfer-Encoding: identity\r\n",
            "Transfer-Encoding: chunked, identity\r\n",
            "Transfer-Encoding: \x0bchunked\r\n",
            "Transfer-Encoding: chunked\0\r\n",
            "Transfer-Encoding: \"chunked\"\r\n",
            "Transfer-Encoding : chunked\r\n",
            "Transfer-Encoding:\r\n chunked\r\n",
            "Transfer-Encoding: CHUNKED\r\nContent-Length: 5\r\n",
            "Transfer-Encoding:\tchunked\r\nContent-Length: 5\r\n",
            "X: y\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n",
            "X: y\rTransfer-Encoding: chunked\r\n",
            "Connection: transfer-encoding\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n",
        ] {
            all.push((format!("{coding:?}"), self.chunked(coding)));
        }
        let underscore = format!("Transfer_Encoding: chunked\r\nContent-Length: {whole}\r\n");
        let padded = self.chunked(&underscore) + &" ".repeat(64);
        all.push(("an underscore in the coding".into(), padded));
        let old = self
            .chunked("Transfer-Encoding: chunked\r\nConnection: keep-alive\r\n")
            .replacen("HTTP/1.1", "HTTP/1.0", 1);
        all.push(("chunks of HTTP/1.0".into(), old));
        let (size, message) = (self.message.len(), &self.message);
        for (name, chunks) in [
            (
                "a size beyond any",
                format!("fffffffffffffffff\r\n{message}\r\n0\r\n\r\n"),
            ),
            (
                "the largest size",
                format!("ffffffffffffffff\r\n{message}\r\n0\r\n\r\n"),
            ),
            (
                "a size with 0x",
                format!("0x{size:x}\r\n{message}\r\n0\r\n\r\n"),
            ),
            (
                "a negative size",
                format!("-{size:x}\r\n{message}\r\n0\r\n\r\n"),
            ),
            (
                "a size and a space",
                format!("{size:x} \r\n{message}\r\n0\r\n\r\n"),
            ),
            ("no size", format!("\r\n{message}\r\n0\r\n\r\n")),
            (
                "a size with LF",
                format!("{size:x}\n{message}\r\n0\r\n\r\n"),
            ),
            (
                "a size with CR",
                format!("{size:x}\r{message}\r\n0\r\n\r\n"),
            ),
            (
                "an extension with LF",
                format!("{size:x};a\nb\r\n{message}\r\n0\r\n\r\n"),
            ),
            (
                "an extension with CR",
                format!("{size:x};a\rb\r\n{message}\r\n0\r\n\r\n"),
            ),
            (
                "a chunk without its end",
                format!("{size:x}\r\n{message}0\r\n\r\n"),
            ),
            (
                "a chunk with another end",
                format!("{size:x}\r\n{message}xx0\r\n\r\n"),
            ),
            ("an end with LF", format!("{size:x}\r\n{message}\r\n0\n\n")),
            (
                "a trailer of a length",
                format!("{size:x}\r\n{message}\r\n0\r\nContent-Length: 9\r\n\r\n"),
            ),
            (
                "a trailer of a coding",
                format!("{size:x}\r\n{message}\r\n0\r\nTransfer-Encoding: chunked\r\n\r\n"),
            ),
        ] {
            all.push((name.to_owned(), self.chunks_then(&chunks, name)));
        }
    }

    /// Where the chunks end as they should, a canary behind them would be an honest second request.
    fn chunks_then(&self, chunks: &str, name: &str) -> String {
        if name.starts_with("a trailer") || name == "a size and a space" {
            let whole = self.chunks(chunks);
            return whole.trim_end_matches(&self.canary()).to_owned();
        }
        self.chunks(chunks)
    }

    fn about_places(&self, all: &mut Vec<(String, String)>) {
        let canary = self.canary();
        for method in [
            "GET", "DELETE", "HEAD", "OPTIONS", "TRACE", "PUT", "CONNECT",
        ] {
            for lines in [
                format!("Content-Length: {}\r\n", canary.len()),
                "Transfer-Encoding: chunked\r\n".to_owned(),
            ] {
                let first = format!("{method} /mcp HTTP/1.1");
                let name = format!("{first} {lines:?}");
                all.push((name, self.with(&first, &lines) + &canary));
            }
        }
        for target in [
            "http://evil.example/mcp",
            "http://localhost/canary",
            "/mcp/../canary",
            "/mcp%2f..%2fcanary",
            "/mcp/..;/canary",
            "/mcp\\canary",
            "/mcp\0",
            "//localhost/mcp",
            "localhost:80",
            "*",
            "",
        ] {
            let first = format!("POST {target} HTTP/1.1");
            let length = format!("Content-Length: {}\r\n", self.message.len());
            let whole = self.with(&first, &length) + &self.message;
            all.push((first, whole.replace("X:", "X-Canary:")));
        }
        let mut hosts = self.post("Host: evil.example\r\n");
        all.push(("two hosts".into(), hosts.clone()));
        hosts = self.post("").replacen("Host: localhost\r\n", "", 1);
        all.push(("no host".into(), hosts));
        for upgrade in ["h2c", "websocket", "TLS/1.0"] {
            let lines = format!(
                "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: {upgrade}\r\nHTTP2-Settings: AAMAAABk\r\n\
                 Content-Length: {}\r\n",
                canary.len()
            );
            let upgraded = self.with("GET /mcp HTTP/1.1", &lines) + &canary;
            all.push((format!("an upgrade to {upgrade}"), upgraded));
        }
        all.push(("HTTP/0.9".into(), "GET /mcp\r\n".into()));
        let mut long = String::new();
        write!(long, "X: {}\r\n", "y".repeat(200_000)).unwrap();
        all.push(("a long head".into(), self.post(&long)));
    }

    /// Everything, by name.
    pub(super) fn corpus(&self) -> Vec<(String, String)> {
        let mut all = Vec::new();
        self.about_lengths(&mut all);
        self.about_codings(&mut all);
        self.about_places(&mut all);
        all
    }
}

/// Requests over HTTP/2 as bytes, each a connection of its own.
#[expect(clippy::too_many_lines, reason = "it is one table")]
pub(super) fn over_http2(way: &Way) -> Vec<(&'static str, Vec<u8>)> {
    let own: Vec<(String, String)> = way
        .headers
        .lines()
        .filter_map(|line| line.split_once(": "))
        .map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned()))
        .collect();
    let plain = [
        (":method", "POST"),
        (":scheme", "http"),
        (":path", "/mcp"),
        (":authority", "localhost"),
    ];
    let length = way.message.len().to_string();
    let request = |pseudo: [(&str, &str); 4], further: &[(&str, &str)], data: &str| {
        let mut block = Vec::new();
        for (name, value) in pseudo {
            literal(&mut block, name, value);
        }
        for (name, value) in &own {
            literal(&mut block, name, value);
        }
        for (name, value) in further {
            literal(&mut block, name, value);
        }
        connection(&block, data)
    };
    let changed = |at: usize, value: &'static str| {
        let mut pseudo = plain;
        pseudo[at].1 = value;
        request(pseudo, &[], &way.message)
    };
    let with = |further: &[(&str, &str)]| request(plain, further, &way.message);
    let mut get = plain;
    get[0].1 = "GET";
    vec![
        ("a coding", with(&[("transfer-encoding", "chunked")])),
        ("a short length", with(&[("content-length", "5")])),
        ("a long length", with(&[("content-length", "500")])),
        (
            "two lengths",
            with(&[("content-length", &length), ("content-length", "5")]),
        ),
        (
            "a length of a GET",
            request(get, &[("content-length", "500")], ""),
        ),
        ("a body of a GET", request(get, &[], &way.message)),
        ("a line end in a value", with(&[("x", "y\r\nx-canary: 1")])),
        ("a bare LF in a value", with(&[("x", "y\nx-canary: 1")])),
        ("a NUL in a value", with(&[("x", "y\0")])),
        ("a line end in a name", with(&[("x: y\r\nx-canary", "1")])),
        ("a colon in a name", with(&[("x-canary: 1", "1")])),
        ("capitals in a name", with(&[("X-Canary", "1")])),
        (
            "a connection",
            with(&[("connection", "x-canary"), ("x-canary", "1")]),
        ),
        ("an upgrade", with(&[("upgrade", "h2c")])),
        ("a late pseudo header", with(&[(":path", "/canary")])),
        (
            "a line end in the path",
            changed(2, "/mcp HTTP/1.1\r\nx-canary: 1\r\n\r\n"),
        ),
        (
            "a line end in the query",
            changed(2, "/mcp?a\r\nx-canary: 1"),
        ),
        ("a space in the query", changed(2, "/mcp?a HTTP/1.1")),
        ("no path", changed(2, "")),
        ("another path", changed(2, "/mcp/../canary")),
        ("a whole address", changed(2, "http://localhost/mcp")),
        (
            "a line end in the method",
            changed(0, "POST /mcp HTTP/1.1\r\nx-canary: 1\r\n\r\nGET"),
        ),
        ("a method of none", changed(0, "CONNECT")),
        ("another authority", changed(3, "evil.example")),
        (
            "a line end in the authority",
            changed(3, "localhost\r\nx-canary: 1"),
        ),
    ]
}

fn literal(block: &mut Vec<u8>, name: &str, value: &str) {
    block.push(0);
    for text in [name, value] {
        assert!(text.len() < 127, "needs no longer integers");
        block.push(u8::try_from(text.len()).unwrap());
        block.extend_from_slice(text.as_bytes());
    }
}

/// A preface, settings, one stream.
fn connection(block: &[u8], data: &str) -> Vec<u8> {
    let mut bytes = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    frame(&mut bytes, 4, 0, 0, &[]);
    let ends = u8::from(data.is_empty());
    frame(&mut bytes, 1, 4 | ends, 1, block);
    if !data.is_empty() {
        frame(&mut bytes, 0, 1, 1, data.as_bytes());
    }
    bytes
}

fn frame(bytes: &mut Vec<u8>, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    bytes.extend_from_slice(&length[1..]);
    bytes.extend_from_slice(&[kind, flags]);
    bytes.extend_from_slice(&stream.to_be_bytes());
    bytes.extend_from_slice(payload);
}
