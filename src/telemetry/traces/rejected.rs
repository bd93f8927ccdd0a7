//! Reads the number of spans of a batch that a collector refused although it took the batch: `partial_success` of
//! OTLP's `ExportTraceServiceResponse`.

/// The field `partial_success` of the answer, and the field `rejected_spans` in it.
const PARTIAL_SUCCESS: u64 = 1;
const REJECTED_SPANS: u64 = 1;

/// Returns the number of refused spans in the answer. An answer that cannot be read counts as none.
pub(super) fn rejected(answer: &[u8]) -> u64 {
    let partial = fields(answer).find_map(|field| match field {
        WireField {
            number: PARTIAL_SUCCESS,
            value: FieldValue::Bytes(partial),
        } => Some(partial),
        _ => None,
    });
    let rejected = fields(partial.unwrap_or_default()).find_map(|field| match field {
        WireField {
            number: REJECTED_SPANS,
            value: FieldValue::Number(rejected),
        } => Some(rejected),
        _ => None,
    });
    rejected.unwrap_or_default()
}

struct WireField<'m> {
    number: u64,
    value: FieldValue<'m>,
}

enum FieldValue<'m> {
    Number(u64),
    Bytes(&'m [u8]),
    /// Of a fixed length: no field that is read has one.
    Fixed,
}

/// The fields of a message, up to what is no field.
fn fields(mut message: &[u8]) -> impl Iterator<Item = WireField<'_>> {
    std::iter::from_fn(move || {
        let key = varint(&mut message)?;
        // Other fields are skipped by their length, because the number may stand behind them.
        let value = match key & 7 {
            0 => FieldValue::Number(varint(&mut message)?),
            1 => message.split_off(..8).map(|_| FieldValue::Fixed)?,
            2 => {
                let length = usize::try_from(varint(&mut message)?).ok()?;
                FieldValue::Bytes(message.split_off(..length)?)
            }
            5 => message.split_off(..4).map(|_| FieldValue::Fixed)?,
            _ => return None,
        };
        Some(WireField {
            number: key >> 3,
            value,
        })
    })
}

fn varint(message: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let byte = message.split_off_first()?;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use prost::Message;

    use super::*;

    #[derive(Message)]
    struct Answer {
        #[prost(message, optional, tag = "1")]
        partial_success: Option<Partial>,
    }

    #[derive(Message)]
    struct Partial {
        #[prost(int64, tag = "1")]
        rejected_spans: i64,
        #[prost(string, tag = "2")]
        error_message: String,
    }

    fn answer(rejected_spans: i64, error_message: &str) -> Vec<u8> {
        let partial = Partial {
            rejected_spans,
            error_message: error_message.to_owned(),
        };
        let answer = Answer {
            partial_success: Some(partial),
        };
        answer.encode_to_vec()
    }

    #[test]
    fn what_a_collector_refused_is_read() {
        assert_eq!(rejected(&answer(5, "too old")), 5);
        assert_eq!(rejected(&answer(300, "")), 300);
        assert_eq!(rejected(&answer(0, "a warning")), 0);
        assert_eq!(rejected(&Answer::default().encode_to_vec()), 0);
    }

    #[test]
    fn what_is_no_answer_says_nothing() {
        let whole = answer(300, "too old");
        for length in 0..whole.len() {
            assert_eq!(rejected(&whole[..length]), 0, "{length}");
        }
        for junk in [
            &b"{}"[..],
            b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff",
            &[0xff; 64],
        ] {
            assert_eq!(rejected(junk), 0, "{junk:?}");
        }
    }
}
