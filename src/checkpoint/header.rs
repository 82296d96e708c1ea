//! The header of safetensors: eight bytes with the length of the header, and a JSON object of
//! names, types, shapes, and positions of elements. Files of `torch.save`, recognized by their
//! first bytes, are refused with advice on how to convert them.

use crate::layout::{DType, Dims, Layout};
use serde::de::{self, Deserializer, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry as Slot;
use std::fmt;

/// Limit on the bytes of a header, or of all headers of a checkpoint together.
pub const MOST_BYTES: u64 = 32 << 20;

/// Limit on the number of tensors of a checkpoint.
pub const MOST_TENSORS: usize = 1 << 18;

/// Limit on the name of a tensor or a type, in bytes.
const MOST_NAME: usize = 1024;

/// First bytes of files that `torch.save` writes.
const OF_TORCH_SAVE: [&[u8]; 2] = [b"PK\x03\x04", b"\x80\x02"];

/// The header's entry for a tensor.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Entry {
    dtype: String,
    #[serde(deserialize_with = "shape")]
    shape: Vec<usize>,
    /// Position of the first byte of the elements, and of the end of the elements, counted from the
    /// end of the header.
    data_offsets: [u64; 2],
}

/// The header of a file.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Header {
    #[serde(rename = "__metadata__", skip_serializing_if = "BTreeMap::is_empty")]
    pub metadata: BTreeMap<String, String>,
    /// Entries by tensor name.
    #[serde(flatten)]
    pub tensors: BTreeMap<String, Entry>,
}

/// Name of an element type in safetensors.
const fn name(dtype: DType) -> &'static str {
    match dtype {
        DType::F64 => "F64",
        DType::F32 => "F32",
        DType::F16 => "F16",
        DType::BF16 => "BF16",
        DType::I64 => "I64",
        DType::I32 => "I32",
        DType::U32 => "U32",
        DType::U8 => "U8",
        DType::Bool => "BOOL",
    }
}

/// Reads the sizes of a shape. Fails if the shape has more than [`Dims::MAX_LEN`] sizes.
fn shape<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<usize>, D::Error> {
    struct Sizes;
    impl<'de> Visitor<'de> for Sizes {
        type Value = Vec<usize>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(f, "up to {} sizes", Dims::MAX_LEN)
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
            let mut sizes = Vec::new();
            while let Some(size) = list.next_element()? {
                if sizes.len() == Dims::MAX_LEN {
                    let most = Dims::MAX_LEN;
                    return Err(de::Error::custom(format_args!(
                        "a tensor of more than {most} dimensions"
                    )));
                }
                sizes.push(size);
            }
            Ok(sizes)
        }
    }
    from.deserialize_seq(Sizes)
}

/// Refuses a name that is too long, or has control characters that would affect a terminal.
pub fn check_name<E: de::Error>(name: &str) -> Result<(), E> {
    if name.len() > MOST_NAME {
        let message = format_args!("a name of {} bytes, more than {MOST_NAME}", name.len());
        return Err(E::custom(message));
    }
    match name.contains(char::is_control) {
        true => Err(E::custom(format_args!("a name with control characters: {name:?}"))),
        false => Ok(()),
    }
}

impl<'de> Deserialize<'de> for Header {
    /// Refuses a name that occurs twice. A plain map would keep the last entry without an error.
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Names;
        impl<'de> Visitor<'de> for Names {
            type Value = Header;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("tensors by name")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Header, A::Error> {
                let mut metadata = None;
                let mut tensors = BTreeMap::new();
                while let Some(name) = map.next_key::<String>()? {
                    if name == "__metadata__" {
                        if metadata.replace(map.next_value()?).is_some() {
                            return Err(de::Error::duplicate_field("__metadata__"));
                        }
                        continue;
                    }
                    check_name(&name)?;
                    let many = tensors.len() == MOST_TENSORS;
                    match tensors.entry(name) {
                        Slot::Occupied(slot) => {
                            let message = format_args!("two tensors are called `{}`", slot.key());
                            return Err(de::Error::custom(message));
                        }
                        Slot::Vacant(_) if many => {
                            let message = format_args!("more than {MOST_TENSORS} tensors");
                            return Err(de::Error::custom(message));
                        }
                        Slot::Vacant(slot) => {
                            let entry: Entry = map.next_value()?;
                            check_name(&entry.dtype)?;
                            slot.insert(entry);
                        }
                    }
                }
                Ok(Header { metadata: metadata.unwrap_or_default(), tensors })
            }
        }
        from.deserialize_map(Names)
    }
}

impl Entry {
    /// The type; `None` for an unsupported type.
    pub fn dtype(&self) -> Option<DType> {
        DType::ALL.into_iter().find(|dtype| name(*dtype) == self.dtype)
    }

    /// Type and shape; `None` for an unsupported type.
    pub fn layout(&self) -> Option<Layout> {
        self.dtype().map(|dtype| Layout::contiguous(dtype, Dims::new(&self.shape)))
    }

    /// Sizes, outermost first.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// Type and shape as text.
    pub fn describe(&self) -> String {
        let dtype = self.dtype.to_lowercase();
        match self.shape.len() {
            0..=8 => format!("{dtype}{:?}", self.shape),
            rank => format!("{dtype} of {rank} dimensions"),
        }
    }

    /// Position of the first byte of the elements, and of the end of the elements, counted from the
    /// end of the header.
    pub const fn span(&self) -> [u64; 2] {
        self.data_offsets
    }

    /// Bytes of the elements; `None` for an unsupported type.
    fn bytes(&self) -> Option<u64> {
        let elements = self.shape.iter().fold(1u64, |n, &size| n.saturating_mul(size as u64));
        self.dtype().map(|dtype| elements.saturating_mul(dtype.bytes() as u64))
    }
}

impl Header {
    /// Makes the header of a file that has the elements of all `tensors` one after the other, in
    /// the order of `tensors`.
    pub fn new<'a>(
        metadata: BTreeMap<String, String>,
        tensors: impl IntoIterator<Item = (&'a str, Layout)>,
    ) -> Self {
        let mut end = 0;
        let entry = |(key, layout): (&str, Layout)| {
            let start = end;
            end += layout.bytes();
            let dtype = name(layout.dtype()).to_owned();
            let shape = layout.shape().to_vec();
            (key.to_owned(), Entry { dtype, shape, data_offsets: [start, end] })
        };
        Self { metadata, tensors: tensors.into_iter().map(entry).collect() }
    }

    /// Eight bytes with the length of the header, and then the header's bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut text = serde_json::to_vec(self).expect("text and numbers");
        // Pad so that elements are aligned.
        text.resize(text.len().next_multiple_of(8), b' ');
        let mut bytes = (text.len() as u64).to_le_bytes().to_vec();
        bytes.append(&mut text);
        bytes
    }

    /// Length of a file's header. `start` has the first eight bytes of the file; `file` is the size
    /// of the file in bytes.
    pub fn length(start: [u8; 8], file: u64) -> Result<u64, String> {
        if OF_TORCH_SAVE.iter().any(|magic| start.starts_with(magic)) {
            return Err(
                "this is a file of torch.save, not a safetensors file: write the state dict with \
                safetensors.torch.save_file"
                    .to_owned(),
            );
        }
        let length = u64::from_le_bytes(start);
        if length > file.saturating_sub(8) {
            return Err(format!(
                "not a safetensors file, or cut off: the header takes {length} bytes, but the file has {file}"
            ));
        }
        Ok(length)
    }

    /// Parses the text of a header. `behind` is the number of bytes that the file has after the
    /// header.
    pub fn decode(text: &[u8], behind: u64) -> Result<Self, String> {
        let header: Self = serde_json::from_slice(text)
            .map_err(|error| format!("the header is not a safetensors header: {error}"))?;
        let mut spans: Vec<(&str, &Entry)> =
            header.tensors.iter().map(|(key, entry)| (key.as_str(), entry)).collect();
        spans.sort_by_key(|(_, entry)| entry.data_offsets);
        let mut end = 0;
        for (key, entry) in spans {
            let [from, to] = entry.data_offsets;
            if from != end || to < from {
                let why = match from < end {
                    true => "tensors overlap",
                    false => "no bytes may lie between tensors",
                };
                return Err(format!(
                    "`{key}` takes bytes {from} to {to}, but the next free byte is {end}: {why}"
                ));
            }
            if let Some(bytes) = entry.bytes()
                && bytes != to - from
            {
                let what = entry.describe();
                return Err(format!("`{key}` is {what} of {bytes} bytes, but has {}", to - from));
            }
            end = to;
        }
        match end == behind {
            true => Ok(header),
            false => Err(format!(
                "the tensors take {end} bytes, but the file has {behind}: the file is cut off, or has extra bytes"
            )),
        }
    }
}
