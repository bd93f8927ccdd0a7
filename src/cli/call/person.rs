//! The source of answers to the server's questions: answers given on the command line, then a person at the terminal.

use std::collections::VecDeque;
use std::io::{self, BufRead as _, IsTerminal as _};

use serde_json::value::RawValue;
use serde_json::{Map, Value, json};
use tokio::sync::mpsc;

use super::form::{QuestionForm, accepted, yes_or_no};
use super::screen::Screen;
use crate::cli::failure::CommandFailure;
use crate::cli::table::cleaned;
use crate::mcp::elicitation::wrong_name;
use crate::platform::environment::quoted;

/// The word that a person types in place of an answer.
const DECLINE: &str = "/decline";

/// Answers for the questions of one call.
#[derive(Debug)]
pub(super) struct Person {
    /// From the command line, for the first questions.
    prepared: VecDeque<Value>,
    is_at_terminal: bool,
    /// Lines of standard input, from the first question on.
    lines: Option<mpsc::Receiver<String>>,
}

/// A question that stays without an answer.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct UnansweredQuestion {
    pub(super) question: String,
    /// The error in the fields of `--answer`. `None`: no `--answer` is left, and there is no terminal to ask on.
    pub(super) wrong: Option<String>,
}

impl Person {
    /// With `--answer` as it was written: the content of an answer as JSON, or `decline`.
    pub(super) fn new(answers: &[String]) -> Result<Self, CommandFailure> {
        let prepared = answers.iter().map(|text| prepared(text));
        Ok(Self {
            prepared: prepared.collect::<Result<_, _>>()?,
            is_at_terminal: io::stdin().is_terminal() && io::stderr().is_terminal(),
            lines: None,
        })
    }

    /// Returns `true` if there may be answers to questions.
    pub(super) fn answers(&self) -> bool {
        self.is_at_terminal || !self.prepared.is_empty()
    }

    /// The answer to an elicitation with these `params`.
    ///
    /// Dropping this loses no line that was not read yet.
    pub(super) async fn answer(
        &mut self,
        params: &RawValue,
        screen: &Screen,
    ) -> Result<Value, UnansweredQuestion> {
        let question = message(params);
        screen.say(&format!("The server asks: {question}"));
        let mut wrong = None;
        if let Some(prepared) = self.prepared.pop_front() {
            wrong = wrong_field(params, &prepared);
            let Some(why) = &wrong else {
                return Ok(prepared);
            };
            // A person can answer in its place. Without a terminal, the error becomes part of the ending.
            if self.is_at_terminal {
                screen.say(&cleaned(&format!("  --answer {why}")));
            }
        }
        let typed = if self.is_at_terminal {
            self.typed_answer(params, screen).await
        } else {
            None
        };
        typed.ok_or(UnansweredQuestion { question, wrong })
    }

    /// The answer that the person types. `None`: the terminal's input has ended.
    async fn typed_answer(&mut self, params: &RawValue, screen: &Screen) -> Option<Value> {
        match QuestionForm::of(params) {
            QuestionForm::Consent => self.consent("  Agree? (y or n): ", screen).await,
            QuestionForm::Visit(address) => {
                screen.say(&format!("  Open this address: {}", cleaned(&address)));
                self.consent("  Will you? (y or n): ", screen).await
            }
            QuestionForm::Fields(fields) => {
                screen.say(&format!("  {DECLINE} declines, Ctrl-C cancels the call."));
                let mut content = Map::new();
                for field in fields {
                    let value = loop {
                        let line = self.line(&field.prompt(), screen).await?;
                        if line.trim() == DECLINE {
                            return Some(declined());
                        }
                        match field.read(&line) {
                            Ok(value) => break value,
                            Err(why) => screen.say(&format!("    {why}")),
                        }
                    };
                    content.extend(value.map(|value| (field.name, value)));
                }
                Some(accepted(&content))
            }
        }
    }

    async fn consent(&mut self, prompt: &str, screen: &Screen) -> Option<Value> {
        loop {
            let line = self.line(prompt, screen).await?;
            match yes_or_no(&line) {
                Ok(true) => return Some(accepted(&Map::new())),
                Ok(false) => return Some(declined()),
                Err(why) => screen.say(&format!("    {why}")),
            }
        }
    }

    async fn line(&mut self, prompt: &str, screen: &Screen) -> Option<String> {
        screen.ask(prompt);
        // The thread starts with the first question, so that a call without one leaves standard input alone.
        let lines = self.lines.get_or_insert_with(typed);
        let line = lines.recv().await;
        if line.is_none() {
            // Ctrl-D ends the terminal's input, also for the next question.
            self.is_at_terminal = false;
            screen.say("");
        }
        line
    }
}

/// Returns the error in a misspelt field of `--answer`. The server cannot show the person who wrote it the fields
/// that there are.
fn wrong_field(params: &RawValue, prepared: &Value) -> Option<String> {
    let params: Value = serde_json::from_str(params.get()).ok()?;
    wrong_name(&params, prepared.get("content")?)
}

/// Returns the text of a question, safe to print.
fn message(params: &RawValue) -> String {
    let params: Value = serde_json::from_str(params.get()).unwrap_or_default();
    let message = params.get("message").and_then(Value::as_str);
    cleaned(message.unwrap_or("(without words)"))
}

fn declined() -> Value {
    json!({"action": "decline"})
}

fn prepared(text: &str) -> Result<Value, CommandFailure> {
    if text == "decline" {
        return Ok(declined());
    }
    let refused = |why: &str| {
        CommandFailure::usage(format!(
            "--answer: {why}; write the answer's fields, such as {}, or decline",
            quoted(r#"{"name":"Ada"}"#)
        ))
    };
    match serde_json::from_str(text) {
        Ok(Value::Object(content)) => Ok(accepted(&content)),
        Ok(_) => Err(refused("not a JSON object")),
        Err(error) => Err(refused(&format!("not JSON: {error}"))),
    }
}

/// The lines of standard input. They are read by a thread of its own, because a read from a terminal cannot be
/// cancelled: the thread may outlive the call, and ends with the process.
fn typed() -> mpsc::Receiver<String> {
    // The small bound leaves lines that are typed ahead in the terminal.
    let (sender, lines) = mpsc::channel(1);
    std::thread::spawn(move || {
        // The first error ends the loop, because `lines` may return the same error without end.
        for line in io::stdin().lock().lines().map_while(Result::ok) {
            if sender.blocking_send(line).is_err() {
                break;
            }
        }
    });
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prepared_answers_are_the_content_or_a_refusal() {
        let accepted = json!({"action": "accept", "content": {"a": 1}});
        assert_eq!(prepared(r#"{"a":1}"#).unwrap(), accepted);
        assert_eq!(prepared("decline").unwrap(), declined());
        for wrong in ["7", "{", "Ada"] {
            assert_eq!(prepared(wrong).unwrap_err().code, 2, "{wrong}");
        }
    }

    #[tokio::test]
    async fn the_first_questions_get_the_prepared_answers() {
        let mut person = Person {
            prepared: [declined()].into(),
            is_at_terminal: false,
            lines: None,
        };
        let params = RawValue::from_string(r#"{"message":"Sure?"}"#.into()).unwrap();
        let screen = Screen::new();
        assert!(person.answers());
        assert_eq!(person.answer(&params, &screen).await, Ok(declined()));
        assert!(!person.answers());
        let nobody = UnansweredQuestion {
            question: "Sure?".into(),
            wrong: None,
        };
        assert_eq!(person.answer(&params, &screen).await, Err(nobody));
    }

    #[tokio::test]
    async fn a_misspelt_field_is_no_answer() {
        let mut person = Person {
            prepared: [accepted(json!({"nme": "Ada"}).as_object().unwrap())].into(),
            is_at_terminal: false,
            lines: None,
        };
        let params =
            r#"{"message":"?","requestedSchema":{"properties":{"name":{"type":"string"}}}}"#;
        let params = RawValue::from_string(params.into()).unwrap();
        let refused = person.answer(&params, &Screen::new()).await.unwrap_err();
        let wrong = "has \"nme\", which is no field of the form: name";
        assert_eq!(refused.wrong.as_deref(), Some(wrong));
    }
}
