//! `remat generate`: writes a text with a trained network.

use super::args::TrainArgs;
use super::checkpoint;
use super::command::GenerateArgs;
use super::failure::Failure;
use super::foreign;
use super::interrupt::{self, Phase};
use super::model::Model;
use super::rehearsal::{self, Blank};
use super::session::{Session, Setup};
use super::target::Target;
use super::task::text::TextTask;
use super::terminal::harmless;
use super::tokenizer::{Decoder, Tokenizer};
use remat::data::Text as Bytes;
use remat::nn::Sampling;
use std::io::{self, IsTerminal as _, Write as _};
use std::ops::ControlFlow;

/// Divisor: the budget is the peak plus the peak divided by `HOLES`, because holes between tensors
/// may take memory.
const HOLES: u64 = 8;

/// Loads a network, and prints the text while generating it.
pub fn run(args: &GenerateArgs) -> Result<(), Failure> {
    let GenerateArgs { checkpoint: path, device, .. } = args;
    if let Some(contradiction) = device.contradiction() {
        return Err(Failure::usage(contradiction));
    }
    interrupt::listen(true)?;
    // The checkpoint contains the options of its training, from which the network is made. A
    // tokenizer sets the number of different tokens.
    let saved = args.foreign.open(path)?;
    let mut instead = saved.instead(&args.foreign);
    instead.push(("batch", 1.to_string()));
    let trained = checkpoint::arguments_of(&saved.options, path, &instead)?;
    let Model::Text(model) = trained.model else {
        let (path, model) = (path.display(), trained.model);
        return Err(Failure::usage(format!(
            "{path} is a {model}, which learns from images; generate takes gpt, gpt2 or lstm"
        )));
    };
    let TrainArgs { memory, learning, optimizer, mut sizes, .. } = *trained;
    let tokenizer = learning.tokenizer.as_deref().map(Tokenizer::open).transpose()?;
    match &tokenizer {
        Some(tokenizer) => sizes.vocabulary = Some(tokenizer.fits(sizes.vocabulary)?),
        None if sizes.vocabulary() != Bytes::VOCABULARY => {
            return Err(foreign::needs_tokenizer(&path.display(), sizes.vocabulary()));
        }
        None => {}
    }
    let (memory, optimizer) = (&memory, &optimizer);
    let target = Target::open(device, 1, false)?;
    // The task has no data. Generating needs no data, and the data files of the training may no
    // longer exist.
    let task = TextTask::untaught(model, sizes, learning.precision.into());
    let fit = saved.fit(&task, path)?;
    if saved.known.is_some() {
        foreign::tell(&saved.file, &fit, path);
    }
    // The budget is the peak of a simulated test on one text, plus extra bytes for holes.
    let setup = Setup::alone(&task, learning.batch, optimizer);
    let full = rehearsal::peak(&target, &Blank::new(&setup, 1)?, memory)?;
    let builder = memory.builder().budget(full + full / HOLES).seed(learning.seed);
    let mut session = Session::new(target.start(builder)?, &setup)?;
    session.load_network(&saved.file).map_err(checkpoint::failure)?;
    // From here on, Ctrl-C ends the text after the current token.
    Phase::Test.begin();
    let sampling = Sampling {
        length: args.length,
        context: sizes.context(model),
        temperature: args.temperature,
        top_k: args.top_k,
        seed: args.seed,
    };
    let prompt: Vec<i32> = match &tokenizer {
        Some(tokenizer) => tokenizer.encode(&args.prompt)?,
        None => args.prompt.bytes().map(i32::from).collect(),
    };
    // Print each token as soon as its characters are complete.
    let mut decoder = tokenizer.as_ref().map(Decoder::new);
    let mut decoded = Ok(());
    let mut text = Text { bytes: args.prompt.clone().into_bytes(), outcome: text_to_stdout("") };
    session.generate(&prompt, sampling, |token| {
        match &mut decoder {
            None => text.bytes.push(u8::try_from(token).unwrap_or(b'?')),
            Some(decoder) => match decoder.push(token as u32) {
                Ok(whole) => text.bytes.extend(whole.into_bytes()),
                Err(failure) => decoded = Err(failure),
            },
        }
        text.print(false);
        let goes_on = decoded.is_ok() && text.outcome.is_ok() && !interrupt::is_requested();
        if goes_on { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    })?;
    decoded?;
    if let Some(decoder) = decoder {
        text.bytes.extend(decoder.finish()?.into_bytes());
    }
    text.bytes.push(b'\n');
    text.print(true);
    match text.outcome {
        // A closed pipe is not an error: the reader of the pipe needs no more text.
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(Failure::new(format!("stdout: {error}")))
        }
        _ if interrupt::is_requested() => Err(Failure::interrupted("interrupted")),
        _ => Ok(()),
    }
}

/// A text printed in whole characters.
struct Text {
    /// Bytes not printed yet.
    bytes: Vec<u8>,
    outcome: io::Result<()>,
}

impl Text {
    /// Prints all complete characters, or, with `all`, all bytes. Bytes that are not UTF-8 are
    /// printed as `U+FFFD`.
    fn print(&mut self, all: bool) {
        let whole = match std::str::from_utf8(&self.bytes) {
            Ok(_) => self.bytes.len(),
            // The last bytes are the beginning of a character. Keep these bytes until the character
            // is complete.
            Err(error) if error.error_len().is_none() && !all => error.valid_up_to(),
            Err(_) => self.bytes.len(),
        };
        let part: Vec<u8> = self.bytes.drain(..whole).collect();
        if self.outcome.is_ok() {
            let part = String::from_utf8_lossy(&part);
            self.outcome = match io::stdout().is_terminal() {
                true => text_to_stdout(&harmless(&part)),
                false => text_to_stdout(&part),
            };
        }
    }
}

fn text_to_stdout(text: &str) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn characters_are_printed_whole() {
        let left = |bytes: &[u8], all| {
            let mut text = Text { bytes: bytes.to_vec(), outcome: Ok(()) };
            text.print(all);
            text.bytes
        };
        assert_eq!(left(b"a", false), b"");
        assert_eq!(left("a\u{e9}".as_bytes(), false), b"");
        assert_eq!(left(b"a\xc3", false), b"\xc3");
        assert_eq!(left(b"a\xc3", true), b"");
        assert_eq!(left(b"\xff\xc3", false), b"");
    }
}
