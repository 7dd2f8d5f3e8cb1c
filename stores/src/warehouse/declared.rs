//! Types that a source names for its columns. The name goes into a statement as it is, so only known ones pass.

/// Types whose values are read back from the text that the engine writes of them.
const PLAIN: [&str; 25] = [
    "BOOLEAN",
    "TINYINT",
    "SMALLINT",
    "INTEGER",
    "BIGINT",
    "HUGEINT",
    "UTINYINT",
    "USMALLINT",
    "UINTEGER",
    "UBIGINT",
    "UHUGEINT",
    "FLOAT",
    "DOUBLE",
    "DATE",
    "TIME",
    "TIME WITH TIME ZONE",
    "TIMESTAMP",
    "TIMESTAMP_S",
    "TIMESTAMP_MS",
    "TIMESTAMP_NS",
    "TIMESTAMP WITH TIME ZONE",
    "INTERVAL",
    "UUID",
    "BLOB",
    "JSON",
];
const MAX_DECIMAL_DIGITS: u8 = 38;

/// The type of a column that is named so; `None` where it has to follow from the cells.
pub(super) fn sql_type(name: &str) -> Option<String> {
    match name {
        "VARCHAR" => Some(name.to_owned()),
        name if PLAIN.contains(&name) || is_decimal(name) => Some(name.to_owned()),
        name if name.starts_with("ENUM(") => Some("VARCHAR".to_owned()),
        _ => None,
    }
}

fn is_decimal(name: &str) -> bool {
    let inner = name.strip_prefix("DECIMAL(").and_then(|rest| rest.strip_suffix(')'));
    let Some((width, scale)) = inner.and_then(|inner| inner.split_once(',')) else { return false };
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse::<u8>().ok()).flatten();
    match (digits(width), digits(scale)) {
        (Some(width), Some(scale)) => (1..=MAX_DECIMAL_DIGITS).contains(&width) && scale <= width,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn given_a_type_when_it_is_declared_then_only_known_ones_pass() {
        for known in PLAIN.iter().copied().chain(["VARCHAR", "DECIMAL(10,2)", "DECIMAL(38,0)"]) {
            assert_eq!(sql_type(known).as_deref(), Some(known));
        }
        assert_eq!(sql_type("ENUM('a', 'b')").as_deref(), Some("VARCHAR"));
        for other in [
            "",
            "bigint",
            "INTEGER[]",
            "STRUCT(a INTEGER)",
            "DECIMAL(39,0)",
            "DECIMAL(2,3)",
            "DECIMAL(0,0)",
            "DECIMAL(2)",
            "DECIMAL(+2,1)",
            "DECIMAL(10,2)) AS x, (SELECT 1",
            "INTEGER) AS x; DROP TABLE t --",
            "BIGINT AS c0",
        ] {
            assert_eq!(sql_type(other), None, "{other}");
        }
    }
}
