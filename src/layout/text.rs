//! Lists of sizes and layouts as data for serde: `[64, 3]`, and `{"dtype":"f32","shape":[64,
//! 3],"strides":[3, 1], "offset":0}` in JSON. Input may be invalid, so every list and layout is
//! checked when it is read.

use super::{DType, Dims, Layout, countable};
use serde::de::{Deserialize, Deserializer, Error, SeqAccess, Visitor};
use serde::ser::{Serialize, Serializer};
use std::fmt;

impl Serialize for Dims {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.iter())
    }
}

impl<'de> Deserialize<'de> for Dims {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_seq(Sizes)
    }
}

struct Sizes;

impl<'de> Visitor<'de> for Sizes {
    type Value = Dims;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a list of up to {} sizes", Dims::MAX_LEN)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Dims, A::Error> {
        let mut values = Vec::new();
        while let Some(value) = list.next_element()? {
            values.push(value);
            if values.len() > Dims::MAX_LEN {
                return Err(Error::invalid_length(values.len(), &self));
            }
        }
        Ok(Dims::new(&values))
    }
}

/// A layout as it was read from a text, before the checks.
#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Unchecked {
    dtype: DType,
    shape: Dims,
    strides: Dims,
    offset: usize,
}

impl TryFrom<Unchecked> for Layout {
    type Error = String;

    fn try_from(unchecked: Unchecked) -> Result<Self, String> {
        let Unchecked { dtype, shape, strides, offset } = unchecked;
        if shape.len() != strides.len() {
            return Err(format!(
                "shape {shape} with strides {strides}: expected a stride for each dimension"
            ));
        }
        let limit = isize::MAX as usize / dtype.bytes();
        let last = shape.iter().zip(strides.iter()).try_fold(offset, |last, (size, &stride)| {
            last.checked_add(size.saturating_sub(1).checked_mul(stride)?)
        });
        let within = countable(dtype, &shape)
            && last.is_some_and(|last| last < limit)
            // Strides along dimensions of size 1 or 0 are never used. The limit nevertheless
            // applies to unused strides, so that arithmetic on strides does not overflow.
            && strides.iter().all(|&stride| stride <= limit);
        if !within {
            return Err(format!(
                "{dtype}{shape} with strides {strides} and offset {offset} reaches beyond {} bytes",
                isize::MAX
            ));
        }
        Ok(Self { dtype, shape, strides, offset })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use remat_rng::SplitMix64;

    const LIMIT: usize = isize::MAX as usize;

    fn read(text: &str) -> Result<Layout, String> {
        serde_json::from_str(text).map_err(|error: serde_json::Error| error.to_string())
    }

    #[test]
    fn types_are_written_by_their_names() {
        for dtype in DType::ALL {
            let text = format!("\"{dtype}\"");
            assert_eq!(serde_json::to_string(&dtype).unwrap(), text);
            assert_eq!(serde_json::from_str::<DType>(&text).unwrap(), dtype);
        }
        let error = serde_json::from_str::<DType>("\"F32\"").unwrap_err().to_string();
        assert!(error.contains("unknown variant `F32`, expected one of `f64`, `f32`"), "{error}");
    }

    #[test]
    fn lists_of_any_rank_come_back() {
        for len in (0..20).chain([100, 254, 255]) {
            let dims = Dims::from_fn(len, |i| if i % 5 == 4 { usize::MAX } else { i * i });
            let text = serde_json::to_string(&dims).unwrap();
            assert_eq!(text, format!("{:?}", &*dims).replace(' ', ""));
            assert_eq!(serde_json::from_str::<Dims>(&text).unwrap(), dims);
        }
        for (text, expected) in [
            (
                serde_json::to_string(&vec![1; 256]).unwrap(),
                "invalid length 256, expected a list of",
            ),
            (serde_json::to_string(&vec![1; 100_000]).unwrap(), "expected a list of up to 255"),
            ("[1,-1]".to_owned(), "invalid value: integer `-1`, expected usize"),
            ("[1,2.0]".to_owned(), "invalid type: floating point `2.0`, expected usize"),
            ("[36893488147419103232]".to_owned(), "expected usize"),
            ("\"[1]\"".to_owned(), "expected a list of up to 255 sizes"),
            ("7".to_owned(), "invalid type: integer `7`, expected a list of up to 255 sizes"),
            ("null".to_owned(), "expected a list of up to 255 sizes"),
        ] {
            let error = serde_json::from_str::<Dims>(&text).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }

    #[test]
    fn layouts_come_back() {
        for (n, dtype) in (0..32).flat_map(|n| DType::ALL.map(|dtype| (n, dtype))) {
            let whole = Layout::contiguous(dtype, [n % 4, 2, n / 4]);
            let turned = whole.permute(&[2, 0, 1]).unwrap();
            let part = turned.slice(0, n / 8, n / 4 - n / 8).unwrap();
            let one = part.slice(2, 1, 1).unwrap();
            let wide = one.broadcast_to(&[5, n / 4 - n / 8, n % 4, 3].into()).unwrap();
            for layout in [whole, turned, part, one, wide] {
                let text = serde_json::to_string(&layout).unwrap();
                assert_eq!(read(&text), Ok(layout), "{text}");
            }
        }
        for layout in [
            Layout::contiguous(DType::F32, Dims::SCALAR),
            Layout::contiguous(DType::F64, Dims::from_fn(Dims::MAX_LEN, |i| 1 + i % 255 / 254)),
            Layout::raw(LIMIT),
        ] {
            assert_eq!(read(&serde_json::to_string(&layout).unwrap()), Ok(layout));
        }
        let text = r#"{"dtype":"bf16","shape":[3,2],"strides":[1,4],"offset":5}"#;
        let part = Layout::contiguous(DType::BF16, [3, 4]).slice(1, 1, 3).unwrap();
        let part = part.slice(0, 1, 2).unwrap().permute(&[1, 0]).unwrap();
        assert_eq!(serde_json::to_string(&part).unwrap(), text);
        assert_eq!(read(text), Ok(part));
    }

    /// Arithmetic on accepted layouts must not overflow. An overflow would panic in this test.
    #[test]
    fn arithmetic_on_any_layout_that_is_read_does_not_overflow() {
        const SIZES: [usize; 12] =
            [0, 1, 1, 2, 2, 3, 4, 8, 1 << 31, LIMIT, usize::MAX - 1, usize::MAX];
        let mut numbers = SplitMix64::new(2);
        let (mut read_some, mut refused_some) = (0, 0);
        for _ in 0..100_000 {
            let rank = numbers.below(6);
            let top = [8, 8, SIZES.len()][numbers.below(3)];
            let mut size = || SIZES[numbers.below(top)];
            let [shape, strides] = [(); 2].map(|()| Dims::from_fn(rank, |_| size()));
            let offset = size();
            let dtype = DType::ALL[numbers.below(DType::ALL.len())];
            let text = format!(
                r#"{{"dtype":"{dtype}","shape":{shape},"strides":{strides},"offset":{offset}}}"#
            );
            let Ok(layout) = read(&text) else {
                refused_some += 1;
                continue;
            };
            read_some += 1;
            assert_eq!((layout.shape(), layout.strides()), (&shape, &strides));
            assert!(layout.span().checked_mul(dtype.bytes()).is_some_and(|n| n <= LIMIT));
            // The offset of the last element, as a kernel computes it.
            let steps = shape.iter().zip(strides.iter()).map(|(n, s)| n.saturating_sub(1) * s);
            assert!((layout.offset() + steps.sum::<usize>()) * dtype.bytes() <= LIMIT);
            assert_eq!(read(&serde_json::to_string(&layout).unwrap()), Ok(layout));
        }
        assert!(read_some > 1000 && refused_some > 1000, "{read_some} and {refused_some}");
    }

    #[test]
    fn wrong_layouts_are_refused() {
        let good = r#"{"dtype":"f32","shape":[2,3],"strides":[3,1],"offset":0}"#;
        assert_eq!(read(good), Ok(Layout::contiguous(DType::F32, [2, 3])));
        let max = LIMIT.to_string();
        for (old, new, expected) in [
            ("[3,1]", "[3]", "shape [2, 3] with strides [3]: expected a stride for each dimension"),
            ("[2,3]", "[]", "shape [] with strides [3, 1]: expected a stride for each dimension"),
            ("[2,3]", &format!("[{max},{max}]"), "reaches beyond 9223372036854775807 bytes"),
            ("[2,3]", &format!("[0,{max}]"), "reaches beyond"),
            ("[3,1]", &format!("[{max},1]"), "reaches beyond"),
            ("[3,1]", "[3,-1]", "invalid value: integer `-1`, expected usize"),
            (r#"":0"#, &format!(r#"":{max}"#), "reaches beyond"),
            (r#"":0"#, r#"":18446744073709551616"#, "expected usize"),
            (r#","offset":0"#, "", "missing field `offset`"),
            ("offset", "start", "unknown field `start`"),
            ("f32", "float", "unknown variant `float`"),
        ] {
            let text = good.replacen(old, new, 1);
            assert_ne!(text, good);
            let error = read(&text).unwrap_err();
            assert!(error.contains(expected), "{text}: {error}");
        }
        for end in 0..good.len() {
            assert!(read(&good[..end]).is_err());
        }
    }
}
