//! JSON for structs must be objects: serde would read a struct from a list too, field by field, which no client means.
//! [`Strict`] stands in front of a deserializer and refuses that at every depth.

use std::fmt;

use serde::de::{
    DeserializeSeed, Deserializer, EnumAccess, Error, MapAccess, SeqAccess, Unexpected, VariantAccess, Visitor,
};

/// Refuses lists where structs are meant, here and below.
pub(crate) struct Strict<D>(pub(crate) D);

/// Passes on what comes, with everything below it strict. `OBJECT`: a list is refused.
struct Watch<V, const OBJECT: bool>(V);

/// The same for what a map, a list or a variant holds.
struct Inside<T>(T);

macro_rules! forward {
    ($($method:ident($($argument:ident: $type:ty),*);)+) => {$(
        fn $method<V: Visitor<'de>>(self, $($argument: $type,)* visitor: V) -> Result<V::Value, D::Error> {
            self.0.$method($($argument,)* Watch::<V, false>(visitor))
        }
    )+};
}

impl<'de, D: Deserializer<'de>> Deserializer<'de> for Strict<D> {
    type Error = D::Error;

    forward! {
        deserialize_any(); deserialize_bool(); deserialize_char(); deserialize_str(); deserialize_string();
        deserialize_i8(); deserialize_i16(); deserialize_i32(); deserialize_i64(); deserialize_i128();
        deserialize_u8(); deserialize_u16(); deserialize_u32(); deserialize_u64(); deserialize_u128();
        deserialize_f32(); deserialize_f64(); deserialize_bytes(); deserialize_byte_buf(); deserialize_option();
        deserialize_unit(); deserialize_seq(); deserialize_map(); deserialize_identifier(); deserialize_ignored_any();
        deserialize_unit_struct(name: &'static str); deserialize_newtype_struct(name: &'static str);
        deserialize_tuple(length: usize); deserialize_tuple_struct(name: &'static str, length: usize);
        deserialize_enum(name: &'static str, variants: &'static [&'static str]);
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        self.0.deserialize_struct(name, fields, Watch::<V, true>(visitor))
    }

    fn is_human_readable(&self) -> bool {
        self.0.is_human_readable()
    }
}

macro_rules! visit {
    ($($method:ident($type:ty);)+) => {$(
        fn $method<E: Error>(self, value: $type) -> Result<V::Value, E> {
            self.0.$method(value)
        }
    )+};
}

impl<'de, V: Visitor<'de>, const OBJECT: bool> Visitor<'de> for Watch<V, OBJECT> {
    type Value = V::Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if OBJECT { f.write_str("an object") } else { self.0.expecting(f) }
    }

    visit! {
        visit_bool(bool); visit_char(char); visit_str(&str); visit_borrowed_str(&'de str); visit_string(String);
        visit_i8(i8); visit_i16(i16); visit_i32(i32); visit_i64(i64); visit_i128(i128);
        visit_u8(u8); visit_u16(u16); visit_u32(u32); visit_u64(u64); visit_u128(u128);
        visit_f32(f32); visit_f64(f64);
        visit_bytes(&[u8]); visit_borrowed_bytes(&'de [u8]); visit_byte_buf(Vec<u8>);
    }

    fn visit_none<E: Error>(self) -> Result<V::Value, E> {
        self.0.visit_none()
    }

    fn visit_unit<E: Error>(self) -> Result<V::Value, E> {
        self.0.visit_unit()
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<V::Value, D::Error> {
        self.0.visit_some(Strict(deserializer))
    }

    fn visit_newtype_struct<D: Deserializer<'de>>(self, deserializer: D) -> Result<V::Value, D::Error> {
        self.0.visit_newtype_struct(Strict(deserializer))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<V::Value, A::Error> {
        if OBJECT {
            return Err(A::Error::invalid_type(Unexpected::Seq, &self));
        }
        self.0.visit_seq(Inside(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<V::Value, A::Error> {
        self.0.visit_map(Inside(map))
    }

    fn visit_enum<A: EnumAccess<'de>>(self, value: A) -> Result<V::Value, A::Error> {
        self.0.visit_enum(Inside(value))
    }
}

impl<'de, T: DeserializeSeed<'de>> DeserializeSeed<'de> for Inside<T> {
    type Value = T::Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<T::Value, D::Error> {
        self.0.deserialize(Strict(deserializer))
    }
}

impl<'de, A: SeqAccess<'de>> SeqAccess<'de> for Inside<A> {
    type Error = A::Error;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, A::Error> {
        self.0.next_element_seed(Inside(seed))
    }

    fn size_hint(&self) -> Option<usize> {
        self.0.size_hint()
    }
}

impl<'de, A: MapAccess<'de>> MapAccess<'de> for Inside<A> {
    type Error = A::Error;

    fn next_key_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, A::Error> {
        self.0.next_key_seed(seed)
    }

    fn next_value_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<T::Value, A::Error> {
        self.0.next_value_seed(Inside(seed))
    }

    fn size_hint(&self) -> Option<usize> {
        self.0.size_hint()
    }
}

impl<'de, A: EnumAccess<'de>> EnumAccess<'de> for Inside<A> {
    type Error = A::Error;
    type Variant = Inside<A::Variant>;

    fn variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Result<(T::Value, Self::Variant), A::Error> {
        self.0.variant_seed(seed).map(|(name, variant)| (name, Inside(variant)))
    }
}

impl<'de, A: VariantAccess<'de>> VariantAccess<'de> for Inside<A> {
    type Error = A::Error;

    fn unit_variant(self) -> Result<(), A::Error> {
        self.0.unit_variant()
    }

    fn newtype_variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Result<T::Value, A::Error> {
        self.0.newtype_variant_seed(Inside(seed))
    }

    fn tuple_variant<V: Visitor<'de>>(self, length: usize, visitor: V) -> Result<V::Value, A::Error> {
        self.0.tuple_variant(length, Watch::<V, false>(visitor))
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, A::Error> {
        self.0.struct_variant(fields, Watch::<V, true>(visitor))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde::Deserialize;
    use serde_json::{Value, json};

    use super::*;

    #[derive(Debug, PartialEq, Deserialize)]
    struct Inner {
        n: i64,
    }

    #[derive(Debug, PartialEq, Deserialize)]
    #[serde(rename_all = "snake_case")]
    enum Choice {
        Plain,
        Holding(Inner),
        Fields { inner: Inner },
    }

    #[derive(Debug, PartialEq, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Outer {
        one: Option<Inner>,
        #[serde(default)]
        many: Vec<Inner>,
        #[serde(default)]
        named: BTreeMap<String, Inner>,
        pair: Option<(i64, i64)>,
        choice: Option<Choice>,
        free: Option<Value>,
    }

    fn strict(value: &Value) -> Result<Outer, serde_json::Error> {
        Outer::deserialize(Strict(&mut serde_json::Deserializer::from_str(&value.to_string())))
    }

    #[test]
    fn given_json_of_the_right_shape_when_it_is_read_then_it_is_what_serde_reads() {
        for value in [
            json!({}),
            json!({"one": {"n": 1}, "many": [{"n": 2}], "named": {"a": {"n": 3}}, "pair": [4, 5], "free": [1, [2], {"a": null}]}),
            json!({"one": null, "choice": "plain"}),
            json!({"choice": {"holding": {"n": 1}}}),
            json!({"choice": {"fields": {"inner": {"n": 1}}}}),
        ] {
            assert_eq!(strict(&value).unwrap(), serde_json::from_value::<Outer>(value.clone()).unwrap(), "{value}");
        }
    }

    #[test]
    fn given_a_list_where_a_struct_is_meant_when_it_is_read_then_it_is_refused_at_any_depth() {
        for value in [
            json!([]),
            json!([{"n": 1}]),
            json!({"one": [1]}),
            json!({"many": [[1]]}),
            json!({"named": {"a": [1]}}),
            json!({"choice": {"holding": [1]}}),
            json!({"choice": {"fields": [{"n": 1}]}}),
            json!({"choice": {"fields": {"inner": [1]}}}),
        ] {
            let error = strict(&value).unwrap_err().to_string();
            assert!(error.contains("invalid type: sequence, expected an object"), "{value}: {error}");
        }
    }
}
