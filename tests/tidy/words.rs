//! Rust source as words and marks: without comments, strings, characters and numbers.

/// What is left of a source text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Token<'t> {
    Word(&'t str),
    /// `::`
    Path,
    Mark(char),
}

pub(crate) fn tokens(text: &str) -> Vec<Token<'_>> {
    let mut found = Vec::new();
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let length = skipped(rest).unwrap_or_else(|| {
            let (token, length) = next(rest, c);
            found.push(token);
            length
        });
        rest = &rest[length..];
    }
    found
}

fn next(rest: &str, c: char) -> (Token<'_>, usize) {
    if is_part(c) {
        let length = word_length(rest);
        (Token::Word(&rest[..length]), length)
    } else if rest.starts_with("::") {
        (Token::Path, 2)
    } else {
        (Token::Mark(c), c.len_utf8())
    }
}

/// How long what comes next is, where it is nothing that a path is made of.
fn skipped(rest: &str) -> Option<usize> {
    let c = rest.chars().next()?;
    if c.is_whitespace() {
        return Some(c.len_utf8());
    }
    if rest.starts_with("//") {
        return Some(rest.find('\n').unwrap_or(rest.len()));
    }
    if rest.starts_with("/*") {
        return Some(block_comment(rest));
    }
    if c == '\'' {
        return Some(character_or_lifetime(rest));
    }
    if c.is_ascii_digit() {
        return Some(word_length(rest));
    }
    if let Some(name) = rest.strip_prefix("r#")
        && name.starts_with(is_part)
    {
        return Some(2); // a raw name: the name itself comes next
    }
    let prefix = rest.find(|c: char| !"brc".contains(c)).unwrap_or(0);
    let behind = &rest[prefix..];
    if prefix <= 2 && behind.starts_with(['"', '#']) {
        let is_raw = rest[..prefix].contains('r');
        return string(behind, is_raw).map(|length| prefix + length);
    }
    None
}

fn block_comment(rest: &str) -> usize {
    let (mut depth, mut at) = (0_usize, 0);
    while at < rest.len() {
        let here = &rest[at..];
        if here.starts_with("/*") {
            depth += 1;
            at += 2;
        } else if here.starts_with("*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            at += here.chars().next().map_or(1, char::len_utf8);
        }
    }
    rest.len()
}

/// From the quote, or from the hashes before it. `None`: it is no string.
fn string(rest: &str, is_raw: bool) -> Option<usize> {
    if is_raw {
        let hashes = rest.find(|c| c != '#')?;
        let inside = rest[hashes..].strip_prefix('"')?;
        let end = format!("\"{}", "#".repeat(hashes));
        let length = inside.find(&end)?;
        return Some(hashes + 1 + length + end.len());
    }
    let inside = rest.strip_prefix('"')?;
    let mut is_escaped = false;
    let length = inside.find(|c| {
        let ends = c == '"' && !is_escaped;
        is_escaped = c == '\\' && !is_escaped;
        ends
    });
    Some(length.map_or(rest.len(), |length| length + 2))
}

fn character_or_lifetime(rest: &str) -> usize {
    let inside = &rest[1..];
    if let Some(escaped) = inside.strip_prefix('\\') {
        // What is escaped may be a quote.
        let first = escaped.chars().next().map_or(0, char::len_utf8);
        let length = escaped[first..].find('\'').unwrap_or(0);
        return 2 + first + length + 1;
    }
    let first = inside.chars().next().map_or(0, char::len_utf8);
    if inside[first..].starts_with('\'') {
        return 1 + first + 1;
    }
    1 + word_length(inside)
}

fn word_length(rest: &str) -> usize {
    rest.find(|c| !is_part(c)).unwrap_or(rest.len())
}

fn is_part(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

#[test]
fn comments_strings_and_numbers_are_no_words() {
    let text = r##"a // super::b
        /* crate::c /* d */ e */ f::g("crate::h \" i", 'j', '\'', '"', b"k", r#"l " m"#) 1.5e3
        fn n<'o>(r#p: &'o str) {}"##;
    let words: Vec<_> = tokens(text)
        .into_iter()
        .filter_map(|token| match token {
            Token::Word(word) => Some(word),
            Token::Path | Token::Mark(_) => None,
        })
        .collect();
    assert_eq!(words, ["a", "f", "g", "fn", "n", "p", "str"]);
}
