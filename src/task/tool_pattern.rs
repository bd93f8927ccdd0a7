//! A tool's name, or a glob of names, where an operator may write either. Pure.

use super::glob::Glob;

/// A tool's name, or a glob of names. Any text may be a name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolPattern {
    text: Box<str>,
    /// `None`: the text is no glob, and so a name only.
    glob: Option<Glob>,
}

impl ToolPattern {
    pub fn of(text: &str) -> Self {
        Self {
            text: text.into(),
            glob: Glob::parse(text).ok(),
        }
    }

    pub fn as_str(&self) -> &str {
        &self.text
    }

    pub fn is_match(&self, tool: &str) -> bool {
        let mut globs = self.glob.iter();
        *self.text == *tool || globs.any(|glob| glob.is_match(tool))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_that_is_no_glob_is_a_name() {
        assert!(ToolPattern::of("build_*").is_match("build_docs"));
        assert!(!ToolPattern::of("build_*").is_match("deploy"));
        assert!(ToolPattern::of("a[b").is_match("a[b"));
        assert!(ToolPattern::of("a[bc]").is_match("a[bc]"));
        assert!(ToolPattern::of("a[bc]").is_match("ab"));
    }
}
