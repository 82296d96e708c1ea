//! The header of safetensors: eight bytes that say how long it is, and a JSON object of names, types, shapes, and where
//! elements lie.

use crate::layout::{DType, Dims, Layout};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Longest header, as in the format's own library.
const MOST: u64 = 100_000_000;

/// What is said of a tensor.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Entry {
    dtype: String,
    shape: Vec<usize>,
    /// Where its bytes begin and end, after the header.
    data_offsets: [u64; 2],
}

/// What a file says it has.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub struct Header {
    #[serde(rename = "__metadata__", default, skip_serializing_if = "BTreeMap::is_empty")]
    pub metadata: BTreeMap<String, String>,
    /// By name.
    #[serde(flatten)]
    pub tensors: BTreeMap<String, Entry>,
}

/// A type, as the format calls it.
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

impl Entry {
    /// Type and shape, if this crate has that type.
    pub fn layout(&self) -> Option<Layout> {
        let dtype = DType::ALL.into_iter().find(|dtype| name(*dtype) == self.dtype)?;
        (self.shape.len() <= Dims::MAX_LEN)
            .then(|| Layout::contiguous(dtype, Dims::new(&self.shape)))
    }

    /// Type and shape in words.
    pub fn describe(&self) -> String {
        self.layout().map_or_else(
            || format!("{}{:?}", self.dtype.to_lowercase(), self.shape),
            |layout| layout.to_string(),
        )
    }

    /// Where its bytes begin and end, after the header.
    pub const fn span(&self) -> [u64; 2] {
        self.data_offsets
    }
}

impl Header {
    /// Of tensors that lie one after the other in this order.
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

    /// Its bytes, with the eight that say how many follow.
    pub fn encode(&self) -> Vec<u8> {
        let mut text = serde_json::to_vec(self).expect("text and numbers");
        // So that elements are aligned.
        text.resize(text.len().next_multiple_of(8), b' ');
        let mut bytes = (text.len() as u64).to_le_bytes().to_vec();
        bytes.append(&mut text);
        bytes
    }

    /// How long a header is that begins with these bytes, in a file of so many.
    pub fn length(start: [u8; 8], file: u64) -> Result<u64, String> {
        let length = u64::from_le_bytes(start);
        if length > MOST || length > file.saturating_sub(8) {
            return Err(format!(
                "this is no safetensors file, or it is cut off: a header of {length} bytes in a file of {file}"
            ));
        }
        Ok(length)
    }

    /// Reads the text of a header, in a file with so many bytes behind it.
    pub fn decode(text: &[u8], behind: u64) -> Result<Self, String> {
        let header: Self = serde_json::from_slice(text)
            .map_err(|error| format!("its header is no safetensors header: {error}"))?;
        let mut spans: Vec<(&str, &Entry)> =
            header.tensors.iter().map(|(key, entry)| (key.as_str(), entry)).collect();
        spans.sort_by_key(|(_, entry)| entry.data_offsets);
        let mut end = 0;
        for (key, entry) in spans {
            let [from, to] = entry.data_offsets;
            if from != end || to < from {
                return Err(format!(
                    "`{key}` lies from byte {from} to {to}, where {end} is the next"
                ));
            }
            if let Some(layout) = entry.layout()
                && layout.bytes() != to - from
            {
                let bytes = layout.bytes();
                return Err(format!("`{key}` is {layout} of {bytes} bytes, and has {}", to - from));
            }
            end = to;
        }
        match end == behind {
            true => Ok(header),
            false => Err(format!(
                "its tensors take {end} bytes, and it has {behind}: it is cut off, or has more than it says"
            )),
        }
    }
}
