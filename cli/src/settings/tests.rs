use super::*;

fn read(pairs: &[(&str, &str)]) -> Result<Settings, CliError> {
    let mut values: BTreeMap<String, String> = pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
    values.entry("HOME".into()).or_insert("/home/ann".into());
    Settings::from_values(&Values::new(values), Path::new("/tmp"))
}

#[test]
fn given_nothing_when_settings_are_read_then_the_defaults_hold() {
    let settings = read(&[]).unwrap();
    assert_eq!(settings.data_dir, Path::new("/home/ann/.local/share/riverrun"));
    assert_eq!((settings.api_host.as_str(), settings.api_port, settings.broker_port), ("127.0.0.1", 8000, 9092));
    assert_eq!((settings.api.chunk_size, settings.api.chunk_overlap, settings.api.rag_top_k), (800, 100, 5));
    assert_eq!((settings.api.rag_fusion, settings.api.rag_context_bytes), (Fusion::Rrf, 0));
    assert_eq!((settings.api.agent_max_iters, settings.api.agent_temperature), (8, 0.2));
    assert_eq!(settings.api.memory_window_tokens, 2_048);
    assert!(settings.kafka_brokers.is_none() && settings.api.tokens.is_empty());
    assert_eq!(settings.api.ingest_roots, [Path::new("/tmp").canonicalize().unwrap()]);
    assert_eq!(settings.database_url, None);
    settings.check_bind().unwrap();
}

#[test]
fn given_values_that_can_not_be_when_settings_are_read_then_the_error_names_the_setting_and_the_fix() {
    for (name, value) in [
        ("RIVERRUN_API_PORT", "http"),
        ("RIVERRUN_API_PORT", "70000"),
        ("RIVERRUN_BROKER_PORT", "-1"),
        ("RIVERRUN_CHUNK_SIZE", "0"),
        ("RIVERRUN_CHUNK_SIZE", "many"),
        ("RIVERRUN_CHUNK_OVERLAP", "-1"),
        ("RIVERRUN_CHUNK_OVERLAP", "900"),
        ("RIVERRUN_RAG_TOP_K", "0"),
        ("RIVERRUN_RAG_FUSION", "RRF"),
        ("RIVERRUN_RAG_CONTEXT_BYTES", "20001"),
        ("RIVERRUN_AGENT_TEMPERATURE", "hot"),
        ("RIVERRUN_AGENT_MAX_ITERS", "0"),
        ("RIVERRUN_MEMORY_WINDOW_TOKENS", "10"),
        ("RIVERRUN_MEMORY_WINDOW_TOKENS", "9000"),
        ("RIVERRUN_INGEST_ROOTS", "/no/such/folder"),
        ("RIVERRUN_LOG_FORMAT", "xml"),
        ("RIVERRUN_WEB_ALLOW", "http://x"),
        ("RIVERRUN_KAFKA_PORT", "19092"),
        (CLIENTS_BROKERS[0], "k:9092"),
        (CLIENTS_BROKERS[1], "k:9092"),
        ("RIVERRUN_KAFKA_SECURITY_PROTOCOL", "none"),
        ("RIVERRUN_QDRANT_URL", "127.0.0.1:6334"),
        ("RIVERRUN_QDRANT_API_KEY", "key"),
        ("RIVERRUN_MONGODB_URL", "127.0.0.1:27017"),
        ("RIVERRUN_WAREHOUSE_URL", "127.0.0.1:8000"),
        ("RIVERRUN_MODEL_RUNTIME_BASE_URL", "localhost"),
        ("RIVERRUN_API_TOKENS", "secret"),
    ] {
        let error = read(&[(name, value)]).unwrap_err();
        assert!(error.message.contains(name) && error.hint.is_some() && error.exit == Exit::Usage, "{name}: {error:?}");
    }
    assert!(!read(&[("RIVERRUN_API_TOKENS", "secret")]).unwrap_err().message.contains("secret"));
    assert!(!read(&[("RIVERRUN_KAFKA_SASL_PASSWD", "secret")]).unwrap_err().message.contains("secret"));
    assert!(!read(&[("RIVERRUN_DATABASE_URL", "mysql://ann:secret@db/x")]).unwrap_err().message.contains("secret"));
}

#[test]
fn given_the_page_of_settings_when_nothing_is_set_then_each_of_them_is_asked_for() {
    let page = include_str!("../../../docs/configuration.md");
    let values = Values::new(BTreeMap::from([("HOME".to_owned(), "/home/ann".to_owned())]));
    Settings::from_values(&values, Path::new("/tmp")).unwrap();
    let asked = values.asked.borrow();
    let mut listed = 0;
    for (at, _) in page.match_indices(PREFIX) {
        let end = page[at..].find(|c: char| !(c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_'));
        let name = &page[at..at + end.unwrap()];
        // A beginning alone stands for many, and what Kafka's client is told has the client's names.
        if !name.ends_with('_') && (!name.starts_with(KAFKA_PREFIX) || name == KAFKA_BROKERS) {
            assert!(asked.contains(name), "{name} would be told to be no setting");
            listed += 1;
        }
    }
    assert!(listed > 80, "{listed}");
}

#[test]
fn given_names_that_are_no_settings_when_a_folder_is_read_then_those_that_were_meant_for_one_are_told() {
    let folder = tempfile::tempdir().unwrap();
    let lines = [("API_PROT", "8123"), ("API_HOSTS", ""), ("BIN", "/bin/riverrun"), ("OPENIA_API_KEY_FILE", "key")];
    std::fs::write(folder.path().join("key"), "canary").unwrap();
    let text: String = lines.iter().map(|(name, value)| format!("{PREFIX}{name}={value}\n")).collect();
    std::fs::write(folder.path().join(".env"), text).unwrap();
    let settings = Settings::load(folder.path()).unwrap();
    let told: Vec<String> = settings.api.misspelt.iter().map(ToString::to_string).collect();
    let wanted = [("API_PROT", "API_PORT"), ("OPENIA_API_KEY_FILE", "OPENAI_API_KEY_FILE")]
        .map(|(name, meant)| format!("{PREFIX}{name} is no setting and is not read: did you mean {PREFIX}{meant}?"));
    assert_eq!(told, wanted);
    for name in ["BROKER", "BOOTSTRAP_SERVER"].map(|own| format!("{KAFKA_PREFIX}{own}")) {
        let hint = read(&[(name.as_str(), "k:9092")]).unwrap_err().hint.unwrap();
        assert!(hint.starts_with(&format!("did you mean {KAFKA_BROKERS}?")), "{name}: {hint}");
    }
}

#[test]
fn given_a_fusion_when_settings_are_read_then_searches_that_name_none_have_it() {
    for (value, fusion) in [("rrf", Fusion::Rrf), ("scores", Fusion::Scores)] {
        assert_eq!(read(&[("RIVERRUN_RAG_FUSION", value)]).unwrap().api.rag_fusion, fusion);
    }
}

#[test]
fn given_settings_with_secrets_when_they_are_shown_then_only_the_others_are() {
    let settings = read(&[
        ("RIVERRUN_API_PORT", "8123"),
        ("RIVERRUN_MEMORY_WINDOW_TOKENS", "512"),
        ("RIVERRUN_API_TOKEN", "canary"),
        ("RIVERRUN_OPENAI_API_KEY", "canary"),
        ("RIVERRUN_KAFKA_SASL_PASSWORD", "canary"),
        ("RIVERRUN_SOURCE_SHOP", "canary"),
        ("RIVERRUN_TRACING_HEADERS", "authorization=canary"),
        ("RIVERRUN_TRACING_ENDPOINT", "https://ann:canary@traces.example/v1"),
    ])
    .unwrap();
    let shown: Vec<&str> = settings.shown.keys().map(String::as_str).collect();
    assert_eq!(shown, ["RIVERRUN_API_PORT", "RIVERRUN_MEMORY_WINDOW_TOKENS"]);
}

#[test]
fn given_kafka_settings_when_they_are_read_then_they_become_librdkafka_names() {
    let settings = read(&[(KAFKA_BROKERS, "k:9092"), ("RIVERRUN_KAFKA_SECURITY_PROTOCOL", "sasl_ssl")]).unwrap();
    assert_eq!(settings.kafka_brokers.as_deref(), Some("k:9092"));
    assert_eq!(settings.kafka_extra, BTreeMap::from([("security.protocol".to_owned(), "sasl_ssl".to_owned())]));
}

#[test]
fn given_kafka_settings_and_no_broker_elsewhere_when_they_are_read_then_only_how_it_is_reached_is_left_out() {
    let given = [
        ("RIVERRUN_KAFKA_SECURITY_PROTOCOL", "sasl_ssl"),
        ("RIVERRUN_KAFKA_SASL_USERNAME", "somebody"),
        ("RIVERRUN_KAFKA_SSL_CA_LOCATION", "/ca.pem"),
        ("RIVERRUN_KAFKA_SESSION_TIMEOUT_MS", "6000"),
    ];
    let settings = read(&given).unwrap();
    assert_eq!(settings.kafka_extra, BTreeMap::from([("session.timeout.ms".to_owned(), "6000".to_owned())]));
}

#[test]
fn given_an_address_that_others_reach_when_there_are_no_tokens_then_it_is_refused() {
    for host in ["0.0.0.0", "192.168.1.2", "::", "example.org"] {
        let error = read(&[("RIVERRUN_API_HOST", host)]).unwrap().check_bind().unwrap_err();
        assert!(error.hint.unwrap().contains("RIVERRUN_API_TOKENS"), "{host}");
    }
    let tokens = format!("ann:{}", "0".repeat(64));
    read(&[("RIVERRUN_API_HOST", "0.0.0.0"), ("RIVERRUN_API_TOKENS", &tokens)]).unwrap().check_bind().unwrap();
    for host in ["127.0.0.1", "::1", "localhost"] {
        read(&[("RIVERRUN_API_HOST", host)]).unwrap().check_bind().unwrap();
    }
}

#[test]
fn given_a_dotenv_file_when_it_is_read_then_only_ours_counts_and_a_broken_line_is_not_shown() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(".env");
    std::fs::write(&path, "# ours\nRIVERRUN_API_PORT=8123\nOTHER=x\nRIVERRUN_LOG=\"a b\"\n").unwrap();
    let values = read_dotenv(&path).unwrap();
    assert_eq!(
        values.into_iter().collect::<Vec<_>>(),
        [("RIVERRUN_API_PORT".into(), "8123".into()), ("RIVERRUN_LOG".into(), "a b".into())] as [(String, String); 2]
    );
    std::fs::write(&path, "RIVERRUN_OPENAI_API_KEY=sk-canary with spaces\n").unwrap();
    let error = read_dotenv(&path).unwrap_err();
    assert!(!error.message.contains("canary") && error.message.contains(".env"), "{error:?}");
    assert!(read_dotenv(&folder.path().join("none")).unwrap().is_empty());
}

#[test]
fn given_a_dotenv_file_that_others_write_to_when_it_is_read_then_their_lines_are_theirs_and_ours_count() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(".env");
    let ours = [("RIVERRUN_API_PORT".to_owned(), "8123".to_owned())];
    for text in [
        "JAVA_OPTS=-Xmx1g -Xms1g\nRIVERRUN_API_PORT=8123\n",
        "RIVERRUN_API_PORT=8123\nGREETING=it's me\n",
        "no line at all\n=x\n1=2\nRIVERRUN_API_PORT=8123",
        "\u{feff}RIVERRUN_API_PORT=8123\r\n",
        "export RIVERRUN_API_PORT=8123",
        "RIVERRUN_API_PORT=8123  ",
    ] {
        std::fs::write(&path, text).unwrap();
        let values = read_dotenv(&path).unwrap_or_else(|error| panic!("{text:?}: {error:?}"));
        assert_eq!(values.into_iter().collect::<Vec<_>>(), ours, "{text:?}");
    }
    // What a quote of theirs takes along is not lost in silence.
    for text in ["GREETING=it's me\nRIVERRUN_API_PORT=8123\n", "export RIVERRUN_LOG=a b\n", "  RIVERRUN_LOG='a\n"] {
        std::fs::write(&path, text).unwrap();
        assert_eq!(read_dotenv(&path).unwrap_err().exit, Exit::Usage, "{text:?}");
    }
}

#[test]
fn given_a_dotenv_file_with_bytes_that_are_no_utf_8_when_it_is_read_then_only_in_settings_of_ours_they_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(".env");
    let ours = [("RIVERRUN_API_PORT".to_owned(), "8123".to_owned())];
    for of_others in [&b"# caf\xe9"[..], b"FOO=\xff\xfe", b"\xff=x", b"\xe9", b"GREETING='caf\xe9'"] {
        let text = [of_others, b"\nRIVERRUN_API_PORT=8123\n"].concat();
        std::fs::write(&path, &text).unwrap();
        let values = read_dotenv(&path).unwrap_or_else(|error| panic!("{text:?}: {error:?}"));
        assert_eq!(values.into_iter().collect::<Vec<_>>(), ours, "{text:?}");
    }
    for of_ours in [
        &b"RIVERRUN_OPENAI_API_KEY=canary\xff"[..],
        b"FOO=x\nexport RIVERRUN_OPENAI_API_KEY='canary\n\xe9'",
        b"RIVERRUN_OPENAI_API_KEY\xff=canary",
        b"\xff\xfeR\0I\0V\0E\0R\0R\0U\0N\0",
    ] {
        std::fs::write(&path, of_ours).unwrap();
        let error = read_dotenv(&path).unwrap_err();
        let told = error.exit == Exit::Usage && error.message.contains(".env") && error.hint.is_some();
        assert!(told && !error.message.contains("canary"), "{error:?}");
    }
    std::fs::write(&path, b"RIVERRUN_LOG=\xff\n").unwrap();
    assert!(read_dotenv(&path).unwrap_err().message.contains("RIVERRUN_LOG"));
}

#[test]
fn given_a_data_folder_that_is_a_file_or_below_one_when_settings_are_read_then_it_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    std::fs::write(&file, "x").unwrap();
    for place in [file.clone(), file.join("below/it")] {
        let error = read(&[("RIVERRUN_DATA_DIR", place.to_str().unwrap())]).unwrap_err();
        let told = error.message.contains("RIVERRUN_DATA_DIR") && error.message.contains(place.to_str().unwrap());
        assert!(told && error.exit == Exit::Usage && error.hint.is_some(), "{error:?}");
    }
    for place in [folder.path().to_owned(), folder.path().join("not/there/yet")] {
        let settings = read(&[("RIVERRUN_DATA_DIR", place.to_str().unwrap())]).unwrap();
        assert_eq!(settings.data_dir, place);
    }
}

#[cfg(unix)]
#[test]
fn given_variables_that_are_no_utf_8_when_the_environment_is_read_then_only_settings_of_ours_are_refused_by_name() {
    use std::os::unix::ffi::OsStringExt;
    let bytes = |text: &[u8]| OsString::from_vec(text.to_vec());
    let read = |name: &[u8], value: &[u8]| {
        let api_port = (bytes(b"RIVERRUN_API_PORT"), bytes(b"8123"));
        environment([(bytes(name), bytes(value)), api_port].into_iter())
    };
    let of_others: [(&[u8], &[u8]); 5] = [
        (b"PWD", b"/srv/caf\xe9"),
        (b"caf\xe9", b"x"),
        (b"HOME", b"/home/ren\xe9"),
        (b"XDG_DATA_HOME", b"\xff"),
        (b"AWS_SECRET_ACCESS_KEY", b"\xff"),
    ];
    for (name, value) in of_others {
        let ours = read(name, value).unwrap();
        assert_eq!(ours.into_iter().collect::<Vec<_>>(), [("RIVERRUN_API_PORT".to_owned(), "8123".to_owned())]);
    }
    let error = read(b"RIVERRUN_OPENAI_API_KEY", b"canary\xff").unwrap_err();
    assert!(error.exit == Exit::Usage && error.message.contains("RIVERRUN_OPENAI_API_KEY"), "{error:?}");
    assert!(error.hint.is_some() && !error.message.contains("canary"), "{error:?}");
}

#[test]
fn given_the_folder_of_another_program_when_the_environment_is_read_then_it_is_the_cache_that_models_are_copied_from() {
    for name in ["RIVERRUN_API_PORT", "HOME", "XDG_DATA_HOME", "XDG_CACHE_HOME", "HF_HOME", "HF_TOKEN"] {
        assert!(is_ours(name), "{name}");
    }
    assert!(!is_ours("PATH"));
    let settings = read(&[("HF_HOME", "/srv/hub")]).unwrap();
    assert_eq!(settings.models.hub_cache_dir.as_deref(), Some(Path::new("/srv/hub/hub")));
    assert!(settings.shown.is_empty());
    let settings = read(&[("HF_TOKEN", "canary")]).unwrap();
    assert!(settings.models.hub_token.is_some() && settings.shown.is_empty());
    assert!(!format!("{:?}", settings.models).contains("canary"));
}

#[test]
fn given_what_the_programs_of_aws_read_when_the_environment_is_read_then_it_is_for_bedrock_and_shown_nowhere() {
    let names =
        ["AWS_REGION", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_BEARER_TOKEN_BEDROCK"];
    let pairs = names.map(|name| (name, if name == "AWS_REGION" { "eu-central-1" } else { "canary" }));
    assert!(names.iter().all(|name| is_ours(name)) && is_ours("AWS_DEFAULT_REGION") && !is_ours("AWS_PROFILE"));
    let settings = read(&pairs).unwrap();
    assert_eq!(settings.models.aws.region.as_deref(), Some("eu-central-1"));
    assert!(settings.models.aws.credentials.is_some() && settings.models.keys.contains_key("bedrock"));
    assert!(settings.shown.is_empty() && !format!("{:?}", settings.models).contains("canary"));
}
