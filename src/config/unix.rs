//! A wrapped server behind a Unix socket: `unix:/run/mcp.sock`, or with a path of its own
//! `unix:/run/mcp.sock:/other`, as nginx writes it.

use std::fmt;
use std::path::PathBuf;

use hyper::http::uri::PathAndQuery;

/// The socket, and the MCP endpoint behind it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Socket {
    /// Absolute.
    pub file: PathBuf,
    /// Path and query; starts with `/`.
    pub path: PathAndQuery,
}

/// The default path, which most servers have.
const USUAL: &str = "/mcp";

/// The longest path of a socket that the kernel takes, without the zero byte at its end.
const FILE_BYTES_MAX: usize = 107;

impl Socket {
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let rest = text.strip_prefix("unix:").unwrap_or(text);
        // unix:///run/mcp.sock is as common, and means the same.
        let rest = match rest.strip_prefix("//") {
            Some(absolute) if absolute.starts_with('/') => absolute,
            _ => rest,
        };
        let (file, path) = match rest.split_once(':') {
            Some((file, path)) => (file, path),
            None => (rest, USUAL),
        };
        if !file.starts_with('/') || file.starts_with("//") || file.ends_with('/') {
            return Err(NOT_A_SOCKET.to_owned());
        }
        if file.len() > FILE_BYTES_MAX {
            return Err(format!(
                "the path of a socket has at most {FILE_BYTES_MAX} bytes, this one {}",
                file.len()
            ));
        }
        if file.contains('\0') || !path.starts_with('/') {
            return Err(NOT_A_SOCKET.to_owned());
        }
        let path = path.parse().map_err(|_| NOT_A_SOCKET.to_owned())?;
        Ok(Self {
            file: file.into(),
            path,
        })
    }
}

impl fmt::Display for Socket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "unix:{}", self.file.display())?;
        if self.path != USUAL {
            write!(f, ":{}", self.path)?;
        }
        Ok(())
    }
}

const NOT_A_SOCKET: &str = "not a socket that can be wrapped; write \"unix:/run/mcp.sock\", or \
                            \"unix:/run/mcp.sock:/path\" where its path is not /mcp";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_and_perhaps_a_path() {
        for (text, file, path, shown) in [
            ("unix:/a.sock", "/a.sock", "/mcp", "unix:/a.sock"),
            ("unix:///a.sock", "/a.sock", "/mcp", "unix:/a.sock"),
            ("unix:/a.sock:/mcp", "/a.sock", "/mcp", "unix:/a.sock"),
            ("unix:/a/b:/x?y=z", "/a/b", "/x?y=z", "unix:/a/b:/x?y=z"),
            ("unix:/a b:/", "/a b", "/", "unix:/a b:/"),
        ] {
            let socket = Socket::parse(text).unwrap();
            assert_eq!(socket.file, PathBuf::from(file), "{text}");
            assert_eq!(socket.path, path, "{text}");
            assert_eq!(socket.to_string(), shown);
        }
    }

    #[test]
    fn what_is_none() {
        for text in [
            "unix:",
            "unix:a",
            "unix:./a",
            "unix://a",
            "unix:/",
            "unix:/a:",
            "unix:/a:b",
            "unix:/a:/b c",
            "unix:////a",
            "unix:/a\0b",
        ] {
            assert_eq!(Socket::parse(text).unwrap_err(), NOT_A_SOCKET, "{text:?}");
        }
        let long = format!("unix:/{}", "a".repeat(FILE_BYTES_MAX));
        assert!(Socket::parse(&long).unwrap_err().ends_with("this one 108"));
    }
}
