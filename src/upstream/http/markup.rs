//! Takes the text out of HTML and XML. Pure.

#![expect(
    clippy::string_slice,
    reason = "every index is of a search in the same text, or behind an ASCII character"
)]

/// Elements whose content is no text.
const UNREAD: [&str; 4] = ["script", "style", "svg", "template"];

/// The text between the tags, with the common character references. A title that the text repeats is there once.
pub(super) fn without_markup(text: &str) -> String {
    let mut out = String::with_capacity(text.len().min(16 * 1024));
    let mut title: Option<String> = None;
    let mut rest = text;
    while let Some(at) = rest.find('<') {
        out.push_str(&rest[..at]);
        rest = &rest[at..];
        let Some(tag) = Tag::of(rest) else {
            out.push('<');
            rest = &rest[1..];
            continue;
        };
        // A tag separates words: `<td>a</td><td>b</td>` is not one word.
        out.push(' ');
        rest = &rest[tag.length..];
        if UNREAD
            .iter()
            .any(|name| tag.name.eq_ignore_ascii_case(name))
        {
            rest = &rest[end_of(rest, tag.name)..];
        } else if tag.name.eq_ignore_ascii_case("title") {
            let end = end_of(rest, tag.name);
            title = Some(spaced(&rest[..end]));
            rest = &rest[end..];
        }
    }
    out.push_str(rest);
    // After the tags are gone, because `&lt;b&gt;` is text and no tag.
    let text = unescaped(&out);
    match title.map(|title| unescaped(&title)) {
        Some(title) if !spaced(&text).starts_with(&title) => format!("{title} {text}"),
        Some(_) | None => text,
    }
}

struct Tag<'t> {
    /// Empty for a comment, a declaration and the end of an element.
    name: &'t str,
    length: usize,
}

impl<'t> Tag<'t> {
    /// The tag at the beginning of the text. A tag without an end takes all that follows.
    fn of(text: &'t str) -> Option<Self> {
        if text.starts_with("<!--") {
            let length = text.find("-->").map_or(text.len(), |at| at + 3);
            return Some(Self { name: "", length });
        }
        let inside = &text[1..];
        if !inside.starts_with(|c: char| c.is_ascii_alphabetic() || "/!?".contains(c)) {
            return None;
        }
        let length = text.find('>').map_or(text.len(), |at| at + 1);
        let name = inside
            .find(|c: char| !c.is_ascii_alphanumeric())
            .map_or(inside, |at| &inside[..at]);
        Some(Self { name, length })
    }
}

/// Where the content of an element ends.
fn end_of(rest: &str, name: &str) -> usize {
    let mut from = 0;
    while let Some(at) = rest[from..].find("</") {
        let at = from + at;
        let named = rest.get(at + 2..at + 2 + name.len());
        if named.is_some_and(|named| named.eq_ignore_ascii_case(name)) {
            return at;
        }
        from = at + 2;
    }
    rest.len()
}

fn spaced(text: &str) -> String {
    let words: Vec<&str> = text.split_whitespace().collect();
    words.join(" ")
}

fn unescaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('&') {
        out.push_str(&rest[..at]);
        rest = &rest[at..];
        // Bounded, because a search for `;` behind each `&` would take quadratic time.
        let end = rest.bytes().take(12).position(|c| c == b';');
        let meant = end.and_then(|end| Some((character(&rest[1..end])?, end)));
        let (character, end) = meant.unwrap_or(('&', 0));
        out.push(character);
        rest = &rest[end + 1..];
    }
    out.push_str(rest);
    out
}

fn character(reference: &str) -> Option<char> {
    if let Some(number) = reference.strip_prefix('#') {
        let number = match number.strip_prefix(['x', 'X']) {
            Some(hex) => u32::from_str_radix(hex, 16),
            None => number.parse(),
        };
        return number.ok().and_then(char::from_u32);
    }
    Some(match reference {
        "amp" => '&',
        "lt" => '<',
        "gt" => '>',
        "quot" => '"',
        "apos" => '\'',
        "nbsp" => ' ',
        "mdash" | "ndash" => '-',
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_without_an_end_take_the_rest() {
        for (text, expected) in [
            ("a<b", "a "),
            ("a <!-- b <i>c</i>", "a  "),
            ("a<script>b", "a "),
            ("1<2", "1<2"),
            ("<", "<"),
            ("&#x41;&#66;&unknown;&", "AB&unknown;&"),
            ("<title>A</title>B", "A   B"),
            ("<TITLE>A &amp; B</TITLE><h1>A &amp; B</h1>", "    A & B "),
        ] {
            assert_eq!(spaced(&without_markup(text)), spaced(expected), "{text}");
        }
    }
}
