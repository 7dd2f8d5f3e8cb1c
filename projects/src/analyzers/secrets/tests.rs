use super::*;

fn rules(path: &str, text: &str) -> Vec<String> {
    let files = Files::from([(path.to_owned(), text.to_owned().into())]);
    analyze(&files).into_iter().map(|one| one.rule).collect()
}

#[test]
fn given_settings_with_and_without_quotes_when_they_are_read_then_passwords_are_found_where_texts_need_none() {
    for (path, line, is_found) in [
        (".env", "DB_PASSWORD=hunter2hunter2", true),
        (".env.production", "export API_KEY='a1b2c3d4e5'", true),
        ("deploy/prod.env", "  SECRET = \"a1b2c3d4e5\"", true),
        (".env", "# DB_PASSWORD=hunter2hunter2", false),
        (".env", "DB_PASSWORD=", false),
        (".env", "DB_PASSWORD=${FROM_VAULT_12}", false),
        (".env", "PASSWORD_FILE=/run/secrets/db", false),
        (".env.example", "DB_PASSWORD=hunter2hunter2", false),
        ("a.py", "password = hunter2hunter2", false),
        ("a.py", "password = 'hunter2hunter2'", true),
        ("a.yml", "password: \"hunter2hunter2\"", true),
        ("a.py", "password = 'your-password'", false),
        ("a.py", "FIELD_OF_ACCESS_TOKEN = 'access_token'", false),
        ("settings.py", "SECRET_KEY = 'k3vq8w2m5z0x'", true),
        ("a.py", "aws_secret_access_key = 'wJalrXUtnFEMI'", true),
        ("a.py", "db = 'postgres://ann:hunter2hunter2@db/x'", true),
        ("compose.yml", "URL: redis://:hunter2hunter2@cache:6379/0", true),
        (".env", "DATABASE_URL=postgres://ann:hunter2hunter2@db/x", true),
        ("a.py", "db = 'postgres://postgres:postgres@localhost/x'", false),
        ("a.py", "db = f'postgres://{user}:{word_of_user}@db/x'", false),
        ("a.sh", "curl https://ann:${PASSWORD_OF_ANN}@host/", false),
        ("a.md", "see https://host:8080/a@b and http://h.example/x", false),
    ] {
        let expected: &[&str] = if is_found { &["literal-password"] } else { &[] };
        assert_eq!(rules(path, line), expected, "{path} {line}");
    }
}

#[test]
fn given_assignments_with_types_and_keys_in_any_language_when_they_are_read_then_texts_of_secrets_are_found_and_masked()
{
    let secret = "hunter2hunter2";
    for (path, line) in [
        ("a.py", "SECRET_KEY: str = \"hunter2hunter2\""),
        ("a.py", "SECRET_KEY: Final[dict[str, str]] = 'hunter2hunter2'"),
        ("a.py", "    db_password: str | None = \"hunter2hunter2\""),
        ("a.py", "os.environ[\"API_KEY\"] = \"hunter2hunter2\""),
        ("a.py", "config['db_password']='hunter2hunter2'"),
        ("a.py", "environ.setdefault(\"API_KEY\",\"hunter2hunter2\")"),
        ("a.py", "os.putenv('API_KEY', 'hunter2hunter2')"),
        ("a.py", "def f(name: str, secret: str = \"hunter2hunter2\"):"),
        ("a.py", "if is_open: password = 'hunter2hunter2'"),
        ("a.py", "# note: password = 'hunter2hunter2'"),
        ("a.ts", "  private password?: string = \"hunter2hunter2\";"),
        ("a.ts", "const password: string = 'hunter2hunter2';"),
        ("a.rs", "const PASSWORD: &str = \"hunter2hunter2\";"),
        ("a.rs", "static API_KEY: &'static str = \"hunter2hunter2\";"),
        ("a.rs", "let password: std::string::String = \"hunter2hunter2\".into();"),
        ("a.go", "var Password string = \"hunter2hunter2\""),
        ("a.go", "os.Setenv(\"API_KEY\", \"hunter2hunter2\")"),
    ] {
        assert_eq!(rules(path, line), ["literal-password"], "{line}");
        assert_eq!(secrets_in(path, line), [secret], "{line}");
    }
    for (path, line) in [
        ("a.py", "kind: Password = 'hunter2hunter2'"),
        ("a.ts", "const kind: Secret = 'hunter2hunter2';"),
        ("a.py", "if password: mode = 'hunter2hunter2'"),
        ("a.py", "def f(password: str, name: str = 'hunter2hunter2'):"),
        ("a.py", "password: str = ''"),
        ("a.py", "password: str = 'changeme-now'"),
        ("a.py", "API_KEY: str = os.environ[\"API_KEY\"]"),
        ("a.py", "password: str = os.getenv('DB_PASSWORD_OF_ALL')"),
        ("a.py", "os.environ['NAME'] = 'hunter2hunter2'"),
        ("a.py", "names[password] = 'hunter2hunter2'"),
        ("a.py", "show('password', 'hunter2hunter2')"),
        ("a.rs", "fn f(password: &str) { let name = \"hunter2hunter2\"; }"),
        ("a.go", "var Name string = \"hunter2hunter2\""),
        ("a.go", "func f(password string) { name := \"hunter2hunter2\" }"),
    ] {
        assert_eq!(secrets_in(path, line), [""; 0], "{line}");
        assert!(rules(path, line).is_empty(), "{line}");
    }
}

#[test]
fn given_a_file_whose_lines_end_with_returns_when_it_is_read_then_each_secret_stands_in_its_line() {
    let text = "x = 1\rpassword = 'hunter2hunter2'\ry = 2\rsecret = 'hunter3hunter3'\r";
    let files = Files::from([("a.py".to_owned(), text.into())]);
    let lines: Vec<usize> = analyze(&files).into_iter().map(|one| one.line).collect();
    assert_eq!(lines, [2, 4]);
    assert_eq!(secrets_in("a.py", text), ["hunter2hunter2", "hunter3hunter3"]);
    let both = "password = 'hunter2hunter2'; u = 'ftp://ann:hunter2hunter2@h'; v = 'ftp://ann:hunter3hunter3@h'";
    assert_eq!(secrets_in("a.py", both), ["hunter2hunter2", "hunter3hunter3"]);
}

#[test]
fn given_a_line_of_megabytes_when_it_is_read_then_each_part_of_it_is_read_once() {
    let key = "hf_".repeat(1 << 20);
    let passwords = |number: usize| format!("password='word{number}word' ftp://a:pass{number}word@h ");
    let many: String = (0..50_000).map(passwords).collect();
    let heads = "-----BEGIN PRIVATE KEY-----é ".repeat(20_000);
    assert!(secrets_in("a.js", &heads).is_empty());
    assert_eq!(rules("a.js", &key), ["key"]);
    assert_eq!(secrets_in("a.js", &key), [key.as_str()]);
    assert_eq!(rules("a.js", &many), ["literal-password"]);
    assert_eq!(secrets_in("a.js", &many).len(), 100_000);
}

#[test]
fn given_many_heads_of_keys_before_one_end_when_secrets_are_taken_then_each_part_is_taken_once() {
    let part = |number: usize| format!("{number:032}");
    let quoted = |number: usize| format!("-----BEGIN PRIVATE KEY-----'\n '{}'\n", part(number));
    let many: String = (0..20_000).map(quoted).collect();
    let text = many.replace(&format!("'{}'", part(15_000)), "'-----END PRIVATE KEY-----'");
    let found = secrets_in("a.py", &text);
    let distinct: HashSet<&str> = found.iter().copied().collect();
    assert!(found.len() > 400 && found.len() == distinct.len(), "{}", found.len());
    assert_eq!(found.last().copied(), Some(part(14_999).as_str()));
    // The next key in front of the same end is whole all the same.
    let key = format!("{}\n{}", "MIIE".repeat(16), "9+/A".repeat(4));
    let text = format!("-----BEGIN PRIVATE KEY-----'\n-----BEGIN PRIVATE KEY-----\n{key}\n-----END PRIVATE KEY-----\n");
    assert_eq!(secrets_in("a.py", &text).last().copied(), Some(key.as_str()));
}

#[test]
fn given_a_mark_before_the_first_line_when_a_key_stands_in_it_then_its_column_is_that_of_the_text() {
    let key = "k = AKIAABCDEFGHIJKLMNOP\n";
    for (text, column) in [(key.to_owned(), 5), (format!("\u{feff}{key}"), 5), (format!("\u{feff}é{key}"), 6)] {
        let files = Files::from([("a.txt".to_owned(), text.clone().into())]);
        let found = analyze(&files);
        assert_eq!((found.len(), found[0].line, found[0].column), (1, 1, column), "{text:?}");
    }
}

#[test]
fn given_numbers_in_data_when_they_are_read_then_only_lists_of_accounts_and_cards_are_told() {
    let accounts =
        "DE89370400440532013000 GB82WEST12345698765432 FR1420041010050500013M02606 NL91ABNA0417164300 BE68539007547034";
    let cards = "4111111111111111,5555555555554444,378282246310005,6011111111111117,5105105105105100";
    let plain: Vec<String> = (0..40).map(|number| format!("40000000000{number:05}")).collect();
    for (text, is_found) in [
        (accounts.to_owned(), true),
        (accounts.replace("DE89", "DE88"), false),
        (cards.to_owned(), true),
        (plain.join("\n"), false),
        (format!("{}\n{cards}", plain.join("\n")), false),
        ("a@b.org,c@b.org,d@b.org,e@b.org,f@b.org".to_owned(), true),
        ("2024010112000000 2024010112000001".to_owned(), false),
    ] {
        let expected: &[&str] = if is_found { &["personal-data"] } else { &[] };
        assert_eq!(rules("people.csv", &text), expected, "{text}");
        assert!(rules("people.py", &text).is_empty(), "{text}");
    }
}

#[test]
fn given_texts_with_any_ends_when_lines_are_chosen_then_each_that_a_rule_speaks_of_is_among_them_with_its_number() {
    let lines = [
        "# see https://example.org",
        "x = 1",
        "",
        "Api_Key = 'a1b2c3d4e5f6'",
        "é = 'AKIAA1A1A1A1A1A1A1A1'; SECRET = 2",
        "-----BEGIN RSA PRIVATE KEY-----",
        "y = 2",
        "url = 'db://me:hunter2hunter2@h'",
    ];
    for (end, last) in [("\n", ""), ("\n", "\n"), ("\r\n", "\r\n"), ("\r", ""), ("\n\n", "\n")] {
        let text = lines.join(end) + last;
        for path in ["a.py", "a.rs"] {
            let chosen = candidates(path, &text);
            let all: Vec<(usize, &str)> =
                lines_of(path, &text).into_iter().enumerate().map(|(index, line)| (index + 1, line)).collect();
            assert!(chosen.iter().all(|one| all.contains(one)), "{end:?}: {chosen:?}");
            let told = |lines: &[(usize, &str)]| {
                let mut found = Vec::new();
                lines.iter().for_each(|line| scan(path, *line, false, &mut found));
                found
            };
            assert_eq!(told(&chosen), told(&all), "{end:?}");
        }
    }
    assert_eq!(candidates("a.py", &lines.join("\n")).len(), 5, "others are passed over");
    assert!(candidates("a.py", "x = 1\ny = 2\n").is_empty());
}
