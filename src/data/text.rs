use super::DataError;
use crate::host::HostTensor;
use flate2::read::GzDecoder;
use remat_memory::ByteSize;
use remat_rng::SplitMix64;
use std::fs::File;
use std::io::Read as _;
use std::path::Path;

/// Limit on the bytes of a text file: some hundred times the King James Bible. The limit keeps an
/// endless device from filling the memory.
const MOST_BYTES: u64 = 1 << 30;

/// Text of Moby-Dick; `moby_dick.md` gives its source.
const MOBY_DICK: &[u8] = include_bytes!("moby_dick.txt.gz");

/// A text as bytes or other tokens; a model predicts each token from the tokens before it. The
/// first part of the text is training data, and the rest is test data. In a text of bytes, nine
/// tenths are training data.
///
/// ```
/// use remat::data::Text;
///
/// let text = Text::moby_dick();
/// let (tokens, next) = text.train(64).batch(&[0, 1]);
/// assert_eq!(&**tokens.shape(), [2, 64]);
/// assert_eq!(tokens.as_i32().unwrap()[1], next.as_i32().unwrap()[0]);
/// ```
#[derive(Clone, Debug)]
pub struct Text {
    tokens: Tokens,
    /// Number of tokens for training, which come first.
    train: usize,
}

#[derive(Clone, Debug)]
enum Tokens {
    Bytes(Vec<u8>),
    Numbers(Vec<i32>),
}

/// A part of a text, cut into successive windows of equal length.
///
/// ```
/// use remat::data::Text;
///
/// let text = Text::of_tokens((0..10).collect(), 9);
/// let windows = text.train(4);
/// assert_eq!(windows.len(), 2);
/// let (tokens, next) = windows.batch(&[1]);
/// assert_eq!(tokens.as_i32(), Some(&[4, 5, 6, 7][..]));
/// assert_eq!(next.as_i32(), Some(&[5, 6, 7, 8][..]));
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Windows<'a> {
    text: &'a Text,
    /// Position of the first token of the part, and of the first token after the part.
    start: usize,
    end: usize,
    context: usize,
}

impl Text {
    /// Number of different tokens in a text of bytes.
    pub const VOCABULARY: usize = 256;

    /// Moby-Dick by Herman Melville, 1.2 MB, which comes with the crate.
    ///
    /// ```
    /// use remat::data::Text;
    ///
    /// let text = Text::moby_dick();
    /// assert!(text.len() > 1_000_000 && text.token_name() == "byte");
    /// ```
    ///
    /// # Panics
    /// Never panics: the text is part of the crate, and tested.
    #[must_use]
    pub fn moby_dick() -> Self {
        let mut bytes = Vec::new();
        GzDecoder::new(MOBY_DICK).read_to_end(&mut bytes).expect("the shipped file is whole");
        Self::of(bytes)
    }

    /// Reads a file in UTF-8.
    ///
    /// ```
    /// use remat::data::Text;
    ///
    /// let path = std::env::temp_dir().join(format!("remat-text-{}.txt", std::process::id()));
    /// std::fs::write(&path, "whales and whalers").unwrap();
    /// let text = Text::file(&path)?;
    /// assert_eq!((text.len(), text.train_len()), (18, 16));
    /// # std::fs::remove_file(path).unwrap();
    /// # Ok::<(), remat::data::DataError>(())
    /// ```
    ///
    /// # Errors
    /// Fails if the file cannot be read, is not UTF-8, or has more than 1 GiB.
    pub fn file(path: &Path) -> Result<Self, DataError> {
        Self::read(path, MOST_BYTES)
    }

    /// Reads a file or pipe of at most `most` bytes.
    fn read(path: &Path, most: u64) -> Result<Self, DataError> {
        let io = |error| DataError::Io { path: path.to_owned(), error };
        let wrong = |message| Err(DataError::Format { path: path.to_owned(), message });
        let mut bytes = Vec::new();
        // The length of a pipe or a device is not known in advance.
        File::open(path)
            .and_then(|file| file.take(most + 1).read_to_end(&mut bytes))
            .map_err(io)?;
        if bytes.len() as u64 > most {
            return wrong(format!("a text has at most {}; train on a part of it", ByteSize(most)));
        }
        if let Err(error) = std::str::from_utf8(&bytes) {
            return wrong(format!("not UTF-8 at byte {}", error.valid_up_to()));
        }
        Ok(Self::of(bytes))
    }

    fn of(bytes: Vec<u8>) -> Self {
        let train = bytes.len() / 10 * 9 + bytes.len() % 10 * 9 / 10;
        Self { tokens: Tokens::Bytes(bytes), train }
    }

    /// Text of the given tokens. The first `train` tokens are training data, and the rest is test
    /// data.
    ///
    /// ```
    /// use remat::data::Text;
    ///
    /// let text = Text::of_tokens(vec![31373, 11, 995, 0, 31373], 3);
    /// assert_eq!((text.train(2).len(), text.test(1).len()), (1, 1));
    /// assert_eq!(text.train(2).batch(&[0]).1.as_i32(), Some(&[11, 995][..]));
    /// ```
    #[must_use]
    pub fn of_tokens(tokens: Vec<i32>, train: usize) -> Self {
        let train = train.min(tokens.len());
        Self { tokens: Tokens::Numbers(tokens), train }
    }

    /// Training part, in windows of `context` tokens.
    ///
    /// ```
    /// use remat::data::Text;
    ///
    /// let text = Text::of_tokens((0..100).collect(), 90);
    /// assert_eq!(text.train(8).len(), 11);
    /// ```
    ///
    /// # Panics
    /// Panics if `context` is 0.
    #[must_use]
    pub fn train(&self, context: usize) -> Windows<'_> {
        Windows::new(self, [0, self.train], context)
    }

    /// Test part, in windows of `context` tokens.
    ///
    /// ```
    /// use remat::data::Text;
    ///
    /// let text = Text::of_tokens((0..100).collect(), 90);
    /// let (tokens, _) = text.test(4).batch(&[0]);
    /// assert_eq!(tokens.as_i32(), Some(&[90, 91, 92, 93][..]));
    /// ```
    ///
    /// # Panics
    /// Panics if `context` is 0.
    #[must_use]
    pub fn test(&self, context: usize) -> Windows<'_> {
        Windows::new(self, [self.train, self.len()], context)
    }

    /// All bytes; empty if the tokens are not bytes.
    ///
    /// ```
    /// use remat::data::Text;
    ///
    /// assert_eq!(Text::moby_dick().bytes().len(), Text::moby_dick().len());
    /// assert!(Text::of_tokens(vec![1, 2, 3], 2).bytes().is_empty());
    /// ```
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        match &self.tokens {
            Tokens::Bytes(bytes) => bytes,
            Tokens::Numbers(_) => &[],
        }
    }

    /// Number of tokens.
    #[must_use]
    pub const fn len(&self) -> usize {
        match &self.tokens {
            Tokens::Bytes(bytes) => bytes.len(),
            Tokens::Numbers(numbers) => numbers.len(),
        }
    }

    /// Whether the text is empty.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Name of a token in reports: `byte`, or `token` if the tokens are not bytes.
    #[must_use]
    pub const fn token_name(&self) -> &'static str {
        match &self.tokens {
            Tokens::Bytes(_) => "byte",
            Tokens::Numbers(_) => "token",
        }
    }

    /// Number of tokens for training, which come first.
    ///
    /// ```
    /// use remat::data::Text;
    ///
    /// assert_eq!(Text::of_tokens(vec![1, 2, 3], 2).train_len(), 2);
    /// ```
    #[must_use]
    pub const fn train_len(&self) -> usize {
        self.train
    }

    fn token(&self, at: usize) -> i32 {
        match &self.tokens {
            Tokens::Bytes(bytes) => bytes[at].into(),
            Tokens::Numbers(numbers) => numbers[at],
        }
    }
}

impl<'a> Windows<'a> {
    fn new(text: &'a Text, [start, end]: [usize; 2], context: usize) -> Self {
        assert!(context > 0, "windows of no tokens");
        Self { text, start, end, context }
    }

    /// Number of full windows that have a next token within the part.
    #[must_use]
    pub const fn len(&self) -> usize {
        (self.end - self.start).saturating_sub(1) / self.context
    }

    /// Whether the part has no windows.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Windows `[n, context]` with the given indices, and targets `[n, context]`: for each token of
    /// the windows, the token that follows it in the text.
    ///
    /// ```
    /// use remat::data::Text;
    ///
    /// let text = Text::of_tokens((0..10).collect(), 10);
    /// let (tokens, next) = text.train(3).batch(&[0, 2]);
    /// assert_eq!(tokens.as_i32(), Some(&[0, 1, 2, 6, 7, 8][..]));
    /// assert_eq!(next.as_i32(), Some(&[1, 2, 3, 7, 8, 9][..]));
    /// ```
    ///
    /// # Panics
    /// Panics if an index is out of range.
    #[must_use]
    pub fn batch(&self, indices: &[usize]) -> (HostTensor, HostTensor) {
        self.at(&indices.iter().map(|i| i * self.context).collect::<Vec<_>>())
    }

    /// Like [`Windows::batch`], but shifts each window towards the end at random, by less than its
    /// length and within the part. Because of the shifts, two passes over the part have different
    /// windows. `seed` and `draw` determine the shifts; each batch should have its own `draw`.
    ///
    /// ```
    /// use remat::data::Text;
    ///
    /// let text = Text::of_tokens((0..100).collect(), 100);
    /// let (tokens, next) = text.train(8).shifted(&[0, 3], 0, 1);
    /// assert_eq!(tokens.as_i32().unwrap()[0] + 1, next.as_i32().unwrap()[0]);
    /// ```
    ///
    /// # Panics
    /// Panics if an index is out of range.
    #[must_use]
    pub fn shifted(&self, indices: &[usize], seed: u64, draw: u64) -> (HostTensor, HostTensor) {
        self.shifted_from(0, indices, seed, draw)
    }

    /// Like [`shifted`](Self::shifted), for a part of a batch that begins with window `first` of
    /// the batch. Each window gets the same shift as in a call for the whole batch.
    ///
    /// ```
    /// use remat::data::Text;
    ///
    /// let text = Text::of_tokens((0..100).collect(), 100);
    /// let windows = text.train(8);
    /// let (whole, _) = windows.shifted(&[0, 3, 5], 0, 1);
    /// let (last, _) = windows.shifted_from(2, &[5], 0, 1);
    /// assert_eq!(whole.as_i32().unwrap()[16..], *last.as_i32().unwrap());
    /// ```
    ///
    /// # Panics
    /// Panics if an index is out of range.
    #[must_use]
    pub fn shifted_from(
        &self,
        first: usize,
        indices: &[usize],
        seed: u64,
        draw: u64,
    ) -> (HostTensor, HostTensor) {
        let mut random = SplitMix64::of(seed, draw);
        random.skip(first);
        let last = self.end - self.start - 1 - self.context;
        let start = |&i: &usize| {
            let shift = random.below(self.context);
            (i * self.context + shift).min(last)
        };
        self.at(&indices.iter().map(start).collect::<Vec<_>>())
    }

    /// Windows that begin at the positions `starts` of the part, and the same windows shifted by
    /// one token.
    fn at(&self, starts: &[usize]) -> (HostTensor, HostTensor) {
        let part = |from: usize, shift: usize| {
            let from = self.start + from + shift;
            assert!(from + self.context <= self.end, "a window out of range");
            from..from + self.context
        };
        let tensor = |shift: usize| {
            let tokens = starts.iter().flat_map(|&from| part(from, shift));
            let values = tokens.map(|at| self.text.token(at)).collect();
            HostTensor::i32([starts.len(), self.context], values).expect("one for each token")
        };
        (tensor(0), tensor(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shipped_text_is_whole() {
        let text = Text::moby_dick();
        assert_eq!(text.bytes().len(), 1_194_394);
        let whole = std::str::from_utf8(text.bytes()).unwrap();
        assert!(whole.starts_with("CHAPTER 1. Loomings.\n\nCall me Ishmael."));
        assert!(whole.ends_with("only found another orphan.\n"));
        let [train, test] = [text.train(128), text.test(128)];
        assert_eq!((train.len(), test.len()), (8398, 933));
    }

    #[test]
    fn windows_follow_each_other_and_none_is_short() {
        let text = Text::of((0..=99).collect());
        let train = text.train(4);
        assert_eq!(train.len(), 22);
        let (now, next) = train.batch(&[0, 21]);
        assert_eq!(now.as_i32().unwrap(), [0, 1, 2, 3, 84, 85, 86, 87]);
        assert_eq!(next.as_i32().unwrap(), [1, 2, 3, 4, 85, 86, 87, 88]);
        assert_eq!(text.test(4).batch(&[0]).0.as_i32().unwrap(), [90, 91, 92, 93]);
        for (bytes, context, windows) in [(0, 1, 0), (1, 1, 0), (2, 1, 0), (9, 7, 1), (9, 8, 0)] {
            assert_eq!(Text::of(vec![0; bytes]).train(context).len(), windows, "{bytes}");
        }
    }

    #[test]
    fn shifted_windows_come_from_the_seed_and_stay_inside() {
        let text = Text::of((0..=255).collect());
        let train = text.train(10);
        let all: Vec<usize> = (0..train.len()).collect();
        let firsts = |seed, draw| {
            let (now, next) = train.shifted(&all, seed, draw);
            let (now, next) = (now.as_i32().unwrap().to_vec(), next.as_i32().unwrap().to_vec());
            assert!(now.iter().zip(&next).all(|(now, next)| now + 1 == *next && *next < 230));
            now.into_iter().step_by(10).collect::<Vec<_>>()
        };
        let found = firsts(1, 2);
        assert_eq!(found, firsts(1, 2));
        assert!(found != firsts(1, 3) && found != firsts(2, 2));
        for (i, first) in all.iter().zip(&found) {
            assert!((10 * i..10 * i + 10).contains(&(*first as usize)), "{i} {first}");
        }
    }

    #[test]
    fn files_that_are_no_text_are_refused() {
        let path = std::env::temp_dir().join(format!("remat-text-{}", std::process::id()));
        let _ = std::fs::remove_file(&path);
        assert!(Text::file(&path).is_err());
        std::fs::write(&path, b"good \xff bad").unwrap();
        let error = Text::file(&path).unwrap_err().to_string();
        assert!(error.ends_with("not UTF-8 at byte 5"), "{error}");
        std::fs::write(&path, "naïve").unwrap();
        assert_eq!(Text::file(&path).unwrap().bytes(), "naïve".as_bytes());
        assert_eq!(Text::read(&path, 6).unwrap().len(), 6);
        let error = Text::read(&path, 5).unwrap_err().to_string();
        assert!(error.ends_with("a text has at most 5 B; train on a part of it"), "{error}");
        std::fs::remove_file(path).unwrap();
    }
}
