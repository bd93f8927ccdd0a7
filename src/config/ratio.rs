//! A part of all, as the user writes it: a number from 0 to 1.

use super::scalar::FromText;

/// A part of all, in millionths.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ratio(u32);

impl Ratio {
    pub(super) const ALL: Self = Self(1_000_000);

    pub fn as_f64(self) -> f64 {
        f64::from(self.0) / 1e6
    }
}

impl FromText for Ratio {
    const KIND: &'static str = "a number from 0 to 1";

    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "it is between 0 and a million"
    )]
    fn from_text(text: &str) -> Result<Self, String> {
        let number = text.trim().parse::<f64>().ok();
        let number = number.filter(|number| (0.0..=1.0).contains(number));
        let number = number.ok_or_else(|| format!("{text:?} is not a number from 0 to 1"))?;
        Ok(Self((number * 1e6).round() as u32))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ratio_is_from_0_to_1() {
        assert_eq!(Ratio::from_text("0.25"), Ok(Ratio(250_000)));
        for wrong in ["", "-0.1", "1.1", "NaN", "all"] {
            assert!(Ratio::from_text(wrong).is_err(), "{wrong}");
        }
    }
}
