//! Conversion of text to tokens and back, by a `tokenizer.json` of the transformers library.

use super::failure::Failure;
use remat::unstable::files::read_whole;
use std::panic::catch_unwind;
use std::path::Path;

/// Size limit of a tokenizer's file, in bytes.
const MOST_BYTES: u64 = 64 << 20;

/// Limit on the tokens kept until a character is complete. After this number of tokens, the
/// character counts as broken.
const MOST_PENDING: usize = 16;

/// A tokenizer: splits a text into tokens, and joins tokens into text.
pub struct Tokenizer(tokenizers::Tokenizer);

impl Tokenizer {
    pub fn open(path: &Path) -> Result<Self, Failure> {
        let wrong = |what: &dyn std::fmt::Display| {
            Failure::new(format!("--tokenizer {}: {what}", path.display()))
        };
        let bytes = read_whole(path, "tokenizers", MOST_BYTES);
        let bytes =
            bytes.map_err(|error| wrong(&format_args!("{error}; name a tokenizer.json")))?;
        let not_one =
            |what: &dyn std::fmt::Display| wrong(&format_args!("not a tokenizer.json: {what}"));
        // The text is parsed as JSON first, because the library panics on some texts that are no
        // JSON.
        serde_json::from_slice::<serde::de::IgnoredAny>(&bytes).map_err(|error| not_one(&error))?;
        let read = catch_unwind(|| tokenizers::Tokenizer::from_bytes(&bytes));
        let read = read.map_err(|_| not_one(&"the tokenizers library panicked"))?;
        read.map(Self).map_err(|error| not_one(&error))
    }

    /// Number of tokens: the largest token number plus 1.
    pub fn vocabulary(&self) -> usize {
        self.0.get_vocab(true).values().max().map_or(0, |&last| last as usize + 1)
    }

    /// Number of different tokens of the network: `wanted`, or by default the tokenizer's number.
    /// Fails if `wanted` is smaller than the tokenizer's number.
    pub fn fits(&self, wanted: Option<usize>) -> Result<usize, Failure> {
        let has = self.vocabulary();
        match wanted {
            Some(wanted) if wanted < has => Err(Failure::usage(format!(
                "--tokenizer has {has} tokens, but the network has {wanted}; give the tokenizer that the network was \
                 trained with"
            ))),
            wanted => Ok(wanted.unwrap_or(has)),
        }
    }

    /// Tokens of a text, without start and end tokens.
    pub fn encode(&self, text: &str) -> Result<Vec<i32>, Failure> {
        let tokens = self.0.encode_fast(text, false);
        let tokens = tokens.map_err(|error| Failure::new(format!("--tokenizer: {error}")))?;
        Ok(tokens.get_ids().iter().map(|&id| id as i32).collect())
    }

    fn decode(&self, tokens: &[u32]) -> Result<String, Failure> {
        let text = self.0.decode(tokens, false);
        text.map_err(|error| Failure::new(format!("--tokenizer: {error}")))
    }
}

/// Decoder of a text, token by token.
pub struct Decoder<'a> {
    tokenizer: &'a Tokenizer,
    /// Tokens since the last point at which all characters were complete.
    pending: Vec<u32>,
    /// Number of bytes already returned of the text of `pending`.
    given: usize,
}

impl<'a> Decoder<'a> {
    pub const fn new(tokenizer: &'a Tokenizer) -> Self {
        Self { tokenizer, pending: Vec::new(), given: 0 }
    }

    /// Adds a token. Returns the new text up to the last complete character.
    pub fn push(&mut self, token: u32) -> Result<String, Failure> {
        self.pending.push(token);
        let text = self.tokenizer.decode(&self.pending)?;
        let whole = match self.pending.len() < MOST_PENDING {
            true => text.trim_end_matches(char::REPLACEMENT_CHARACTER),
            false => &text,
        };
        let new = whole.get(self.given..).unwrap_or_default().to_owned();
        if whole.len() == text.len() {
            self.pending.clear();
            self.given = 0;
        } else {
            self.given += new.len();
        }
        Ok(new)
    }

    /// Returns the text of the tokens whose characters were not complete.
    pub fn finish(self) -> Result<String, Failure> {
        let text = self.tokenizer.decode(&self.pending)?;
        Ok(text.get(self.given..).unwrap_or_default().to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fixture(name: &str) -> std::path::PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name)
    }

    #[test]
    fn tokens_are_those_of_the_transformers_library_and_come_back_in_whole_characters() {
        let tokenizer = Tokenizer::open(&fixture("tokenizer.json")).unwrap();
        assert_eq!(tokenizer.vocabulary(), 320);
        let all = std::fs::read_to_string(fixture("hf.json")).unwrap();
        let all: serde_json::Value = serde_json::from_str(&all).unwrap();
        for case in all["tokenizer"]["encoded"].as_array().unwrap() {
            let (text, expected) = (case[0].as_str().unwrap(), case[1].as_array().unwrap());
            let tokens = tokenizer.encode(text).unwrap();
            let found: Vec<i64> = tokens.iter().map(|&token| token.into()).collect();
            assert_eq!(serde_json::json!(found), serde_json::json!(expected), "{text}");
            let mut decoder = Decoder::new(&tokenizer);
            let mut parts = Vec::new();
            for token in tokens {
                parts.push(decoder.push(token as u32).unwrap());
            }
            parts.push(decoder.finish().unwrap());
            assert!(parts.iter().all(|part| !part.contains('\u{fffd}')), "{parts:?}");
            assert_eq!(parts.concat(), text);
        }
    }

    /// Decoding token by token gives the same text as decoding all tokens at once, also for bytes
    /// that are not UTF-8.
    #[test]
    fn decoding_token_by_token_gives_the_text_of_all_at_once() {
        let tokenizer = Tokenizer::open(&fixture("tokenizer.json")).unwrap();
        let whole = tokenizer.encode("a猫b").unwrap();
        let mut random = 7u32;
        for _ in 0..200 {
            let mut tokens: Vec<u32> = Vec::new();
            for _ in 0..12 {
                random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                tokens.push(whole[(random >> 16) as usize % whole.len()] as u32);
            }
            let mut decoder = Decoder::new(&tokenizer);
            let mut text = String::new();
            for &token in &tokens {
                text += &decoder.push(token).unwrap();
            }
            text += &decoder.finish().unwrap();
            assert_eq!(text, tokenizer.decode(&tokens).unwrap(), "{tokens:?}");
        }
    }
}
