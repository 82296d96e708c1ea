//! Samples: one operation of each variant of Burn's IR, made by the IR's own `Deserialize`. If Burn
//! adds a variant, `all` includes it without a change here.
//!
//! Tests use the samples to check properties of all operations. Most samples cannot be run, because
//! their shapes and numbers are arbitrary.

use burn_ir::OperationIr;
use serde::de::value::StrDeserializer;
use serde::de::{
    Deserialize, DeserializeSeed, Deserializer, EnumAccess, MapAccess, SeqAccess, VariantAccess,
    Visitor,
};
use serde::forward_to_deserialize_any;

pub(crate) mod cases;

type Error = serde::de::value::Error;

/// All samples. Each tensor has a number of its own and the status `ReadWrite`.
pub(crate) fn all() -> Vec<OperationIr> {
    let mut made = Vec::new();
    let mut path = Vec::new();
    loop {
        let mut maker = Maker { path, at: 0, number: 0 };
        made.push(OperationIr::deserialize(&mut maker).unwrap());
        path = maker.path;
        // The next path: remove all choices at the end that are at their last variant. The last
        // remaining choice then takes its next variant.
        while path.last().is_some_and(|(choice, of)| choice + 1 == *of) {
            path.pop();
        }
        match path.last_mut() {
            Some((choice, _)) => *choice += 1,
            None => return made,
        }
    }
}

/// Deserializer without input: invents a value of each requested type.
struct Maker {
    /// Choices of variants of an operation's enums, from the outermost enum inwards: the index of
    /// the chosen variant, and the number of variants.
    path: Vec<(usize, usize)>,
    /// Number of choices of `path` that the current sample has used.
    at: usize,
    /// Running number: the last number given to an integer.
    number: u64,
}

impl<'de> Deserializer<'de> for &mut Maker {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.number += 1;
        visitor.visit_u64(self.number)
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_bool(true)
    }

    fn deserialize_f32<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_f32(1.5)
    }

    fn deserialize_f64<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_f64(1.5)
    }

    /// Makes the number 2. The running number, which all other integers get, may be too large for a
    /// `u8`.
    fn deserialize_u8<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_u8(2)
    }

    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_str("custom")
    }

    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_str("custom")
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_some(self)
    }

    fn deserialize_unit<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_unit()
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Error> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_seq(Elements { maker: self, left: 2 })
    }

    fn deserialize_tuple<V: Visitor<'de>>(self, len: usize, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_seq(Elements { maker: self, left: len })
    }

    fn deserialize_tuple_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        len: usize,
        visitor: V,
    ) -> Result<V::Value, Error> {
        visitor.visit_seq(Elements { maker: self, left: len })
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        visitor.visit_map(Fields { maker: self, fields, at: 0 })
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        let variant = match name {
            "TensorStatus" => "ReadWrite",
            "DType" => "F32",
            _ if name == "OperationIr" || name.ends_with("OperationIr") => {
                if self.at == self.path.len() {
                    self.path.push((0, variants.len()));
                }
                self.at += 1;
                variants[self.path[self.at - 1].0]
            }
            _ => variants[0],
        };
        visitor.visit_enum(Variant { maker: self, variant })
    }

    forward_to_deserialize_any! {
        i8 i16 i32 i64 i128 u16 u32 u64 u128 char bytes byte_buf unit_struct map identifier
        ignored_any
    }
}

/// Sequence of `left` elements.
struct Elements<'a> {
    maker: &'a mut Maker,
    left: usize,
}

impl<'de> SeqAccess<'de> for Elements<'_> {
    type Error = Error;

    fn next_element_seed<T: DeserializeSeed<'de>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, Error> {
        let Some(left) = self.left.checked_sub(1) else { return Ok(None) };
        self.left = left;
        seed.deserialize(&mut *self.maker).map(Some)
    }
}

struct Fields<'a> {
    maker: &'a mut Maker,
    fields: &'static [&'static str],
    at: usize,
}

impl<'de> MapAccess<'de> for Fields<'_> {
    type Error = Error;

    fn next_key_seed<T: DeserializeSeed<'de>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, Error> {
        let Some(field) = self.fields.get(self.at) else { return Ok(None) };
        self.at += 1;
        seed.deserialize(StrDeserializer::new(field)).map(Some)
    }

    fn next_value_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<T::Value, Error> {
        seed.deserialize(&mut *self.maker)
    }
}

struct Variant<'a> {
    maker: &'a mut Maker,
    variant: &'static str,
}

impl<'de> EnumAccess<'de> for Variant<'_> {
    type Error = Error;
    type Variant = Self;

    fn variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Result<(T::Value, Self), Error> {
        let variant = seed.deserialize(StrDeserializer::new(self.variant))?;
        Ok((variant, self))
    }
}

impl<'de> VariantAccess<'de> for Variant<'_> {
    type Error = Error;

    fn unit_variant(self) -> Result<(), Error> {
        Ok(())
    }

    fn newtype_variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Result<T::Value, Error> {
        seed.deserialize(self.maker)
    }

    fn tuple_variant<V: Visitor<'de>>(self, len: usize, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_seq(Elements { maker: self.maker, left: len })
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        visitor.visit_map(Fields { maker: self.maker, fields, at: 0 })
    }
}
