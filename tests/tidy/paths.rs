//! The paths that a source file says, in `use` and elsewhere, but for what is only there for tests.

use crate::words::{Token, tokens};

/// What a file says of others.
#[derive(Debug, Default)]
pub(crate) struct Reading {
    pub(crate) paths: Vec<Named>,
    /// Modules of its own that are only there for tests, and have files of their own.
    pub(crate) test_modules: Vec<String>,
}

/// A path as it is written.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct Named {
    /// The modules within the file in which it is said.
    pub(crate) within: Vec<String>,
    pub(crate) path: Vec<String>,
    /// How the file calls it from there on, where a `use` says it.
    pub(crate) known_as: Option<String>,
}

pub(crate) fn read(text: &str) -> Reading {
    let mut reader = Reader {
        tokens: tokens(text),
        at: 0,
        depth: 0,
        within: Vec::new(),
        found: Reading::default(),
    };
    while reader.at < reader.tokens.len() {
        reader.step();
    }
    reader.found
}

struct Reader<'t> {
    tokens: Vec<Token<'t>>,
    at: usize,
    /// Braces that are open.
    depth: usize,
    /// Modules that are open, and at which depth each began.
    within: Vec<(String, usize)>,
    found: Reading,
}

impl<'t> Reader<'t> {
    fn ahead(&self, by: usize) -> Option<Token<'t>> {
        self.tokens.get(self.at + by).copied()
    }

    fn comes(&self, expected: &[Token<'_>]) -> bool {
        self.tokens[self.at..].starts_with(expected)
    }

    fn step(&mut self) {
        use Token::{Mark, Word};
        let is_mod = self.ahead(0) == Some(Word("mod")) && self.ahead(2) == Some(Mark('{'));
        if self.comes(&ONLY_FOR_TESTS) {
            self.at += ONLY_FOR_TESTS.len();
            self.skip_item();
        } else if self.comes(&[Word("pub"), Mark('('), Word("in")]) {
            while self.ahead(0).is_some_and(|token| token != Mark(')')) {
                self.at += 1;
            }
        } else if let (true, Some(Word(name))) = (is_mod, self.ahead(1)) {
            self.within.push((name.to_owned(), self.depth));
            self.at += 2;
        } else if self.ahead(0) == Some(Word("use")) && self.ahead(1) != Some(Mark('<')) {
            self.at += 1;
            self.tree(&[]);
        } else if let Some(Word(_)) = self.ahead(0) {
            self.path();
        } else {
            self.brace();
            self.at += 1;
        }
    }

    fn brace(&mut self) {
        match self.ahead(0) {
            Some(Token::Mark('{')) => self.depth += 1,
            Some(Token::Mark('}')) => {
                self.depth = self.depth.saturating_sub(1);
                self.within.pop_if(|(_, began)| *began == self.depth);
            }
            _ => {}
        }
    }

    /// An item goes to its `;` or to the end of its braces.
    fn skip_item(&mut self) {
        let mut open = 0_usize;
        let mut last = None;
        while let Some(token) = self.ahead(0) {
            self.at += 1;
            match token {
                Token::Mark('{' | '(' | '[') => open += 1,
                Token::Mark('}' | ')' | ']') => open = open.saturating_sub(1),
                Token::Mark(';') if open == 0 => {
                    if let (Some(Token::Word("mod")), Some(Token::Word(name))) =
                        (self.back(3), last)
                    {
                        self.found.test_modules.push(name.to_owned());
                    }
                    return;
                }
                Token::Word(_) | Token::Path | Token::Mark(_) => {}
            }
            if token == Token::Mark('}') && open == 0 {
                return;
            }
            last = Some(token);
        }
    }

    fn back(&self, by: usize) -> Option<Token<'t>> {
        self.tokens.get(self.at.checked_sub(by)?).copied()
    }

    /// `a::b::C` where it is not the end of a longer path, or a method.
    fn path(&mut self) {
        let is_end = self.back(1) == Some(Token::Path);
        let is_member =
            self.back(1) == Some(Token::Mark('.')) && self.back(2) != Some(Token::Mark('.'));
        let mut path = Vec::new();
        while let Some(Token::Word(word)) = self.ahead(0) {
            path.push(word.to_owned());
            self.at += 1;
            match (self.ahead(0), self.ahead(1)) {
                (Some(Token::Path), Some(Token::Word(_))) => self.at += 1,
                _ => break,
            }
        }
        if path.len() > 1 && !is_end && !is_member {
            self.say(path, None);
        }
    }

    /// One branch of a `use`, to its comma or end.
    fn tree(&mut self, before: &[String]) {
        let mut path = before.to_vec();
        while let Some(token) = self.ahead(0) {
            match token {
                Token::Word("as") => {
                    if let Some(Token::Word(name)) = self.ahead(1) {
                        self.say(path, Some(name.to_owned()));
                    }
                    self.at += 2;
                    return;
                }
                Token::Word(word) => path.push(word.to_owned()),
                Token::Path => {}
                Token::Mark('{') => return self.branches(&path),
                Token::Mark('*') => {
                    self.at += 1;
                    path.push("*".to_owned());
                    return self.say(path, None);
                }
                Token::Mark(_) => {
                    if path.len() > 1 {
                        path.pop_if(|last| last == "self");
                    }
                    let known_as = path.last().cloned();
                    return self.say(path, known_as);
                }
            }
            self.at += 1;
        }
    }

    fn branches(&mut self, before: &[String]) {
        self.at += 1;
        while let Some(token) = self.ahead(0) {
            match token {
                Token::Mark('}') => {
                    self.at += 1;
                    return;
                }
                Token::Mark(',') => self.at += 1,
                Token::Word(_) | Token::Path | Token::Mark(_) => self.tree(before),
            }
        }
    }

    fn say(&mut self, path: Vec<String>, known_as: Option<String>) {
        let within = self.within.iter().map(|(name, _)| name.clone()).collect();
        self.found.paths.push(Named {
            within,
            path,
            known_as,
        });
    }
}

/// `#[cfg(test)]`
const ONLY_FOR_TESTS: [Token<'_>; 7] = [
    Token::Mark('#'),
    Token::Mark('['),
    Token::Word("cfg"),
    Token::Mark('('),
    Token::Word("test"),
    Token::Mark(')'),
    Token::Mark(']'),
];

#[test]
fn paths_are_read_however_they_are_nested() {
    let text = "pub(in crate::no) use super::{a::{self, B as C}, d::*};\nuse e;\n\
                fn f(x: Vec<super::g::H>) -> impl I + use<> { j::k::<crate::l::M>(); x.n::<O>(1..p::Q) }\n\
                mod r { use super::S; }\nlet t = $crate::u::V;\n\
                #[cfg(test)]\npub(super) mod w;\n#[cfg(test)] fn x(y: [u8; 1]) { z::Z }\n\
                #[cfg(test)]\nmod tests { use super::*; }";
    let found = read(text);
    let paths: Vec<_> = found.paths.iter().map(|it| it.path.join("::")).collect();
    let expected = "super::a super::a::B super::d::* e super::g::H j::k crate::l::M p::Q super::S \
                    crate::u::V";
    assert_eq!(paths.join(" "), expected);
    assert_eq!(found.paths[1].known_as.as_deref(), Some("C"));
    assert_eq!(found.paths[8].within, ["r"]);
    assert_eq!(found.test_modules, ["w"]);
}
