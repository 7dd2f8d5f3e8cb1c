//! When two calls are the same: their arguments are the same JSON, however it is written.

use serde_json::{Number, Value};

/// Beyond this not every whole number is a `f64`.
const MAX_WHOLE: f64 = 9_007_199_254_740_992.0;

/// Arguments in the form in which calls are compared: keys in order at every depth, and whole numbers without a fraction. What is no
/// JSON is its own form. What is recorded of a call stays as the model wrote it.
pub(crate) fn canonical(arguments_json: &str) -> String {
    match serde_json::from_str::<Value>(arguments_json) {
        Ok(value) => ordered(value).to_string(),
        Err(_) => arguments_json.to_owned(),
    }
}

fn ordered(value: Value) -> Value {
    match value {
        Value::Object(map) => {
            let mut fields: Vec<(String, Value)> = map.into_iter().map(|(key, value)| (key, ordered(value))).collect();
            fields.sort_by(|left, right| left.0.cmp(&right.0));
            Value::Object(fields.into_iter().collect())
        }
        Value::Array(items) => Value::Array(items.into_iter().map(ordered).collect()),
        Value::Number(number) => Value::Number(whole(number)),
        value @ (Value::Null | Value::Bool(_) | Value::String(_)) => value,
    }
}

fn whole(number: Number) -> Number {
    match number.as_f64() {
        Some(float) if number.is_f64() && float.fract() == 0.0 && float.abs() <= MAX_WHOLE => {
            Number::from(float as i64)
        }
        _ => number,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    type Fields = Vec<(String, i32)>;

    /// The fields of an object, and the same in another order.
    fn fields() -> impl Strategy<Value = (Fields, Fields)> {
        proptest::collection::btree_map("[a-f]{1,3}", -9..9_i32, 0..8).prop_flat_map(|map| {
            let fields: Fields = map.into_iter().collect();
            (Just(fields.clone()), Just(fields).prop_shuffle())
        })
    }

    fn object(fields: &[(String, i32)], fraction: &str) -> String {
        let fields: Vec<String> = fields.iter().map(|(key, number)| format!("\"{key}\": {number}{fraction}")).collect();
        format!("{{{}}}", fields.join(","))
    }

    proptest! {
        #[test]
        fn given_arguments_when_keys_at_any_depth_stand_in_another_order_and_1_is_1_0_then_the_call_is_the_same(
            (one, other) in fields()
        ) {
            let (first, second) = (object(&one, ""), object(&other, ".0"));
            let first = format!("{{\"x\":{first},\"y\":[{first},true,null]}}");
            let second = format!("{{\"y\": [{second}, true, null], \"x\": {second}}}");
            prop_assert_eq!(canonical(&first), canonical(&second));
            prop_assert_eq!(canonical(&canonical(&first)), canonical(&first));
        }
    }

    #[test]
    fn given_arguments_that_differ_when_they_are_compared_then_the_calls_differ() {
        for (one, other) in [
            (r#"{"a":1}"#, r#"{"a":2}"#),
            (r#"{"a":1}"#, r#"{"a":"1"}"#),
            (r#"{"a":1}"#, r#"{"a":1.5}"#),
            (r#"{"a":[1,2]}"#, r#"{"a":[2,1]}"#),
            (r#"{"a":9007199254740993}"#, r#"{"a":9007199254740992}"#),
            ("no JSON", "other"),
        ] {
            assert_ne!(canonical(one), canonical(other), "{one} {other}");
        }
    }
}
