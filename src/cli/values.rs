//! Parsers of values on the command line.

use super::failure::Failure;
use remat::ByteSize;
use remat::evict::Exponents;
pub use remat::tune::{Budget, Share};
use remat::unstable::memory::SplitRule;
use std::fmt;
use std::num::IntErrorKind;
use std::str::FromStr;

/// Parses a whole number from 1 up.
pub fn count(text: &str) -> Result<usize, String> {
    match text.parse::<usize>() {
        Ok(n) if n > 0 => Ok(n),
        Err(error) if *error.kind() == IntErrorKind::PosOverflow => {
            Err(format!("give a whole number from 1 to {}", usize::MAX))
        }
        _ => Err("give a whole number from 1 up".to_owned()),
    }
}

/// Parses a whole number from 1 to `most`.
fn count_to(most: usize, text: &str) -> Result<usize, String> {
    let number = count(text).ok().filter(|&n| n <= most);
    number.ok_or_else(|| format!("give a whole number from 1 to {most}"))
}

/// Parses numbers of ranks, such as `8,64,1024`.
pub fn ranks(text: &str) -> Result<Vec<u64>, String> {
    const MOST: u64 = 1 << 20;
    // `1,024` would be 1 and 24 ranks.
    let number = |part: &str| {
        let is_written_so = |ranks: &u64| ranks.to_string() == part;
        let ranks = part.parse().ok().filter(is_written_so);
        ranks.filter(|ranks| (1..=MOST).contains(ranks)).ok_or_else(|| {
            format!("`{part}` is no number of ranks; give whole numbers from 1 to {MOST}, such as 8,64,1024")
        })
    };
    let ranks = text.split(',').map(|part| number(part.trim())).collect::<Result<Vec<_>, _>>()?;
    Ok(distinct(ranks.into_iter()))
}

/// Parses the number of batches in a step, from 1 to 65,536.
pub fn parts(text: &str) -> Result<usize, String> {
    count_to(65_536, text)
}

/// Parses a number of layers, from 1 to 4,096. A larger network takes minutes to build, and is
/// probably a typing mistake.
pub fn layers(text: &str) -> Result<usize, String> {
    count_to(4096, text)
}

/// Parses a number of steps, from 0 up.
pub fn from_no_steps(text: &str) -> Result<usize, String> {
    text.parse().map_err(|_| "give a whole number from 0 up".to_owned())
}

/// Parses height and width of images.
pub fn image_size(text: &str) -> Result<[usize; 2], String> {
    let sizes: Result<Vec<usize>, _> = text.split('x').map(count).collect();
    let sizes = sizes.ok().and_then(|sizes| sizes.try_into().ok());
    sizes.ok_or_else(|| "give height and width, such as 64x64".to_owned())
}

/// Parses a number of pixels.
pub fn pixels(text: &str) -> Result<usize, String> {
    let pixels = text.parse::<u16>().map_err(|_| "give a whole number from 0 to 65535")?;
    Ok(pixels.into())
}

/// Parses a seed.
pub fn seed(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| format!("give a whole number from 0 to {}", u64::MAX))
}

/// Parses shares and ranges of shares, such as `40%,64MiB,10%..50%:5%`.
pub fn shares(text: &str) -> Result<Vec<Share>, String> {
    /// Limit on the steps of a range. A larger number is probably a typing mistake.
    const MOST: f64 = 1e5;
    let mut shares = Vec::new();
    for part in text.split(',') {
        let Some((from, rest)) = part.split_once("..") else {
            shares.push(part.parse::<Share>()?);
            continue;
        };
        let help = "write a range as FROM..TO:STEP, such as 10%..100%:10%; all three are percentages, or all are sizes";
        let (to, step) = rest.split_once(':').ok_or(help)?;
        let [from, to, step] = [from, to, step].map(str::parse::<Share>);
        let (from, to, step) = (from?, to?, step?);
        let (start, end, width, is_percent) = match (from, to, step) {
            (Share::Percent(from), Share::Percent(to), Share::Percent(step)) => {
                (from, to, step, true)
            }
            (Share::Bytes(from), Share::Bytes(to), Share::Bytes(step)) => {
                (from as f64, to as f64, step as f64, false)
            }
            _ => return Err(help.to_owned()),
        };
        // Without the addition of 1e-9, rounding could leave out the end of the range.
        let steps = ((end - start) / width + 1e-9).floor();
        if !(0.0..=MOST).contains(&steps) {
            return Err(format!("{part} is empty or has more than {MOST} steps; {help}"));
        }
        shares.extend((0..=steps as u64).map(|i| {
            let value = start + i as f64 * width;
            if is_percent {
                // Rounded, so that the value is 10.3 and not 10.299999999999999.
                Share::Percent((value * 1e9).round() / 1e9)
            } else {
                Share::Bytes(value as u64)
            }
        }));
    }
    Ok(shares)
}

/// Budgets of all ranks: one for all of them, or one for each.
#[derive(Clone, Debug, PartialEq)]
pub struct Budgets(Vec<Budget>);

impl Budgets {
    /// The first budget.
    pub fn first(&self) -> Budget {
        self.0[0]
    }

    /// Budget of rank `rank` of `size` ranks.
    pub fn of_rank(&self, rank: usize, size: usize) -> Result<Self, Failure> {
        let Self(budgets) = self;
        match budgets.len() {
            1 => Ok(self.clone()),
            many if many == size => Ok(Self(vec![budgets[rank]])),
            many if size == 1 => Err(Failure::usage(format!(
                "--budget has {many} values, but there is one rank; give one value, or use --distributed"
            ))),
            many => Err(Failure::usage(format!(
                "--budget has {many} values for {size} ranks; give one for all, or {size}"
            ))),
        }
    }
}

impl FromStr for Budgets {
    type Err = <Budget as FromStr>::Err;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        text.split(',').map(str::parse).collect::<Result<_, _>>().map(Self)
    }
}

/// Parses a number of threads.
pub fn threads(text: &str) -> Result<usize, String> {
    count_to(1024, text)
}

/// Parses a number above 0, such as a learning rate.
pub fn above_zero(text: &str) -> Result<f32, String> {
    number(text, |x| x > 0.0, "give a number above 0, such as 0.1")
}

/// Parses a share: a number above 0 and at most 1.
pub fn part(text: &str) -> Result<f64, String> {
    let help = "give a number above 0 and at most 1, such as 0.25; 1 is all";
    number(text, |x| x > 0.0 && x <= 1.0, help)
}

/// Parses a number from 0 up, such as a weight decay or a limit.
pub fn from_zero<F: FromStr + Copy + Into<f64>>(text: &str) -> Result<F, String> {
    number(text, |x| x >= 0.0, "give a number from 0 up")
}

/// Parses a factor, a number above 0.
pub fn factor(text: &str) -> Result<f64, String> {
    number(text, |x| x > 0.0, "give a number above 0, such as 1.5")
}

/// Parses the rule for how much of a hole a tensor gets: `exact`, `tensorflow`, or `tensorflow:`
/// and a size.
pub fn split_rule(text: &str) -> Result<SplitRule, String> {
    match text.split_once(':') {
        None if text == "exact" => Ok(SplitRule::Exact),
        None if text == "tensorflow" => Ok(SplitRule::tensorflow()),
        Some(("tensorflow", size)) => {
            let bytes: Result<ByteSize, _> = size.parse();
            let ByteSize(bytes) = bytes.map_err(|error| error.to_string())?;
            Ok(SplitRule::TensorFlow { max_internal_fragmentation: bytes })
        }
        _ => {
            Err("choose exact, tensorflow, or tensorflow:SIZE, such as tensorflow:64MiB".to_owned())
        }
    }
}

/// Parses a number from 0 to below 1, such as a momentum.
pub fn below_one(text: &str) -> Result<f32, String> {
    number(text, |x| (0.0..1.0).contains(&x), "give a number from 0 to below 1, such as 0.9")
}

/// Parses the exponents of MegEngine's function, given as `cost,bytes,staleness`.
pub fn exponents(text: &str) -> Result<Exponents, String> {
    let help = "give three exponents, of cost, bytes and staleness, such as 1,1,1";
    let values: Vec<f64> =
        text.split(',').map(|part| number(part, |_| true, help)).collect::<Result<_, _>>()?;
    match values[..] {
        [cost, bytes, staleness] => Ok(Exponents { cost, bytes, staleness }),
        _ => Err(help.to_owned()),
    }
}

/// Parses a finite number for which `allowed` is true.
fn number<F: FromStr + Copy + Into<f64>>(
    text: &str,
    allowed: impl Fn(f64) -> bool,
    help: &str,
) -> Result<F, String> {
    text.trim()
        .parse::<F>()
        .ok()
        .filter(|&x| x.into().is_finite() && allowed(x.into()))
        .ok_or_else(|| help.to_owned())
}

/// Name of a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DeviceName {
    #[default]
    Cpu,
    /// GPU, by number.
    Cuda(usize),
}

impl FromStr for DeviceName {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "cpu" => Ok(Self::Cpu),
            "cuda" => Ok(Self::Cuda(0)),
            _ => {
                let number = text.strip_prefix("cuda:").and_then(|number| number.parse().ok());
                number.map(Self::Cuda).ok_or("choose cpu, cuda, or cuda:1 for the second GPU")
            }
        }
    }
}

impl fmt::Display for DeviceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cpu => f.write_str("cpu"),
            Self::Cuda(number) => write!(f, "cuda:{number}"),
        }
    }
}

/// Items without repetitions, in the order of first appearance.
pub fn distinct<T: PartialEq>(items: impl Iterator<Item = T>) -> Vec<T> {
    items.fold(Vec::new(), |mut seen, item| {
        if !seen.contains(&item) {
            seen.push(item);
        }
        seen
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_read_back() {
        for text in ["cpu", "cuda:0", "cuda:12"] {
            assert_eq!(text.parse::<DeviceName>().unwrap().to_string(), text);
        }
        assert_eq!("cuda".parse(), Ok(DeviceName::Cuda(0)));
        for text in ["", "gpu", "cuda:", "cuda:-1", "cuda:x", "cuda 0", "CPU", "cuda:1e3"] {
            assert!(text.parse::<DeviceName>().is_err(), "{text}");
        }
    }

    #[test]
    fn ranges_have_both_their_ends() {
        let percents: Vec<Share> =
            [10.0, 10.1, 10.2, 10.3].iter().map(|&p| Share::Percent(p)).collect();
        assert_eq!(shares("10%..10.3%:0.1%"), Ok(percents));
        assert_eq!(shares("10%..100%:10%").unwrap().len(), 10);
        assert_eq!(shares("10%..100%:0.1%").unwrap().len(), 901);
        let mixed = shares("40%,1KiB..2KiB:512, 64MiB").unwrap();
        assert_eq!(mixed.len(), 5);
        assert_eq!(mixed[2], Share::Bytes(1536));
        assert!(shares("auto").is_err());
        assert!(shares("10..50:10").unwrap_err().contains("did you mean 10%?"));
        for text in ["", "10%..20%", "20%..10%:1%", "10%..20%:1KiB", "1%..1000000%:0.0001%", "10%,"]
        {
            assert!(shares(text).is_err(), "{text}");
        }
    }

    #[test]
    fn ranks_are_whole_numbers_without_marks() {
        assert_eq!(ranks("8, 64,8,1024"), Ok(vec![8, 64, 1024]));
        assert_eq!(ranks("1"), Ok(vec![1]));
        for text in ["", "0", "8,", "1,024", "-8", "+8", "8.5", "1048577", "8;64"] {
            assert!(ranks(text).unwrap_err().contains("from 1 to 1048576"), "{text}");
        }
    }

    #[test]
    fn numbers_are_finite_and_in_range() {
        assert_eq!(above_zero("1e-2"), Ok(0.01));
        assert_eq!(from_zero("0"), Ok(0.0f32));
        assert_eq!(below_one("0.9"), Ok(0.9));
        assert_eq!((part("1"), part("0.25")), (Ok(1.0), Ok(0.25)));
        assert!(["0", "-1", "1.01", "2", "NaN", "inf", ""].iter().all(|text| part(text).is_err()));
        assert!(["NaN", "inf", "0", "-1", "x"].iter().all(|text| above_zero(text).is_err()));
        assert!(["1", "-0.1", "NaN"].iter().all(|text| below_one(text).is_err()));
        assert_eq!(factor("1.5"), Ok(1.5));
        assert!(["NaN", "inf", "0", "-1", "x"].iter().all(|text| factor(text).is_err()));
        assert_eq!(split_rule("exact"), Ok(SplitRule::Exact));
        assert_eq!(split_rule("tensorflow"), Ok(SplitRule::tensorflow()));
        let most = SplitRule::TensorFlow { max_internal_fragmentation: 3 << 20 };
        assert_eq!(split_rule("tensorflow:3MiB"), Ok(most));
        let wrong = ["", "Exact", "exact:1", "tensorflow:", "tensorflow:x", "tensorflow:-1", "bfc"];
        assert!(wrong.iter().all(|text| split_rule(text).is_err()));
        assert_eq!(exponents("1, 2,0.5").unwrap().bytes, 2.0);
        assert!(["1,2", "1,2,3,4", "1,NaN,1", ""].iter().all(|text| exponents(text).is_err()));
        assert!(["0", "-1", "1.5", ""].iter().all(|text| count(text).is_err()));
        assert!(count("99999999999999999999").unwrap_err().ends_with(&usize::MAX.to_string()));
        for text in ["1e6", "999999999999TiB", "1X"] {
            assert!(
                text.parse::<Share>().unwrap_err().to_string().contains("TiB, KB, MB, GB or TB"),
                "{text}"
            );
        }
        assert!("16777215TiB".parse::<Share>().is_ok() && "16777216TiB".parse::<Share>().is_err());
    }
}
