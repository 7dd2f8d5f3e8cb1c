//! `LOG-3`, the evolution gate: FULL_TRANSITIVE over every stored version, and what an old reader does with a newer writer.

use std::collections::BTreeSet;
use std::sync::Arc;

use apache_avro::Schema;
use apache_avro::schema_compatibility::SchemaCompatibility;
use apache_avro::types::Value as Avro;
use proptest::prelude::*;
use riverrun_schemas::agent::{AgentCommand, AgentEvent, RunFinished, RunOutcome, Step, StepKind};
use riverrun_schemas::codec::WriterSchema;
use riverrun_schemas::{DecodeError, Decoded, EventSet, RunId, Topic, framing, registry};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

fn every_field(schema: &Value, visit: &mut impl FnMut(&Value)) {
    match schema {
        Value::Object(map) => {
            for field in map.get("fields").and_then(Value::as_array).into_iter().flatten() {
                visit(field);
            }
            map.values().for_each(|value| every_field(value, visit));
        }
        Value::Array(items) => items.iter().for_each(|value| every_field(value, visit)),
        _ => {}
    }
}

fn every_enum(schema: &Value, visit: &mut impl FnMut(&Value)) {
    match schema {
        Value::Object(map) => {
            if map.get("type") == Some(&json!("enum")) {
                visit(schema);
            }
            map.values().for_each(|value| every_enum(value, visit));
        }
        Value::Array(items) => items.iter().for_each(|value| every_enum(value, visit)),
        _ => {}
    }
}

#[test]
fn every_version_of_a_subject_reads_every_other() {
    for one in registry::all() {
        for other in registry::versions(&one.subject()) {
            SchemaCompatibility::can_read(&other.schema, &one.schema).unwrap_or_else(|e| {
                panic!(
                    "{} v{} can't read v{}: {e}; add fields with a default, never change one",
                    one.subject(),
                    one.version,
                    other.version
                )
            });
        }
    }
}

#[test]
fn ids_are_unique_and_versions_count_from_one() {
    let ids: Vec<u32> = registry::all().iter().map(|schema| schema.id).collect();
    assert!(ids.is_sorted_by(|one, next| one < next), "ids are appended in order: {ids:?}");
    for schema in registry::all() {
        let versions: Vec<_> = registry::versions(&schema.subject()).iter().map(|s| s.version).collect();
        assert_eq!(versions, (1..=versions.len() as u32).collect::<Vec<_>>(), "{}", schema.subject());
        assert_eq!(schema.schema.name().unwrap().fullname(None), schema.record);
    }
}

/// What is wrong with a stored file, if its bytes are not those that were listed.
fn edited(file: &str, text: &str, listed: &str) -> Option<String> {
    let found = format!("{:x}", Sha256::digest(text));
    (found != listed).then(|| {
        format!(
            "schemas/{file} has sha256 {found}, but schemas/registry.toml lists {listed}: a stored schema is for ever: \
             undo the edit and add version N+1; only a new file is listed with its own: sha256sum schemas/{file}"
        )
    })
}

#[test]
fn given_stored_schemas_when_their_bytes_are_hashed_then_none_was_edited_since_it_was_listed() {
    let findings: Vec<_> =
        registry::all().iter().filter_map(|schema| edited(&schema.file, schema.text, &schema.sha256)).collect();
    assert!(findings.is_empty(), "{}", findings.join("\n"));
}

#[test]
fn given_an_edit_that_golden_bytes_do_not_show_when_hashed_then_the_file_and_the_fix_are_named() {
    let schema = registry::all().iter().find(|schema| schema.text.contains("\"default\": null")).unwrap();
    let edits = [
        schema.text.replacen("\"default\": null", "\"default\" : null", 1),
        schema.text.replacen("\"fields\"", "\"doc\": \"another meaning\", \"fields\"", 1),
        schema.text.replacen("\"fields\"", "\"aliases\": [\"Other\"], \"fields\"", 1),
        format!("{}\n", schema.text),
    ];
    for edit in edits {
        let finding = edited(&schema.file, &edit, &schema.sha256).expect("an edit is found");
        assert!(finding.contains(&schema.file) && finding.contains("undo the edit and add version N+1"), "{finding}");
    }
}

#[test]
fn given_the_folder_of_schemas_when_compared_with_the_list_then_every_file_has_one_id() {
    let mut listed: Vec<_> = registry::all().iter().map(|schema| schema.file.as_str()).collect();
    listed.sort_unstable();
    let stored: Vec<_> = registry::files().collect::<BTreeSet<_>>().into_iter().collect();
    assert_eq!(listed, stored, "each file in schemas/avro has one entry in schemas/registry.toml");
}

#[test]
fn every_field_has_a_default_or_is_a_record_and_every_enum_knows_the_unknown() {
    for schema in registry::all() {
        let text: Value = serde_json::from_str(schema.text).unwrap();
        every_field(&text, &mut |field| {
            let record = field["type"].is_object() && field["type"]["type"] == "record"
                || field["type"].is_string()
                    && !["string", "long", "int", "double", "boolean", "bytes"]
                        .contains(&field["type"].as_str().unwrap());
            assert!(
                field.get("default").is_some() || record,
                "{}: field {} has no default",
                schema.record,
                field["name"]
            );
        });
        every_enum(&text, &mut |e| assert_eq!(e["default"], "unknown", "{}: enum {}", schema.record, e["name"]));
    }
}

/// The newest schema of a record, changed as a later version might change it.
fn later(topic: Topic, record: &str, change: impl FnOnce(&mut Value)) -> Schema {
    let mut text: Value = serde_json::from_str(registry::newest(topic, record).unwrap().text).unwrap();
    change(&mut text);
    Schema::parse_str(&text.to_string()).unwrap()
}

/// JSON as an untyped Avro value, for `resolve` to give it its types.
fn avro(json: &Value) -> Avro {
    match json {
        Value::Null => Avro::Null,
        Value::Bool(b) => Avro::Boolean(*b),
        Value::Number(n) => n.as_i64().map_or_else(|| Avro::Double(n.as_f64().unwrap()), Avro::Long),
        Value::String(s) => Avro::String(s.clone()),
        Value::Array(items) => Avro::Array(items.iter().map(avro).collect()),
        Value::Object(map) => Avro::Record(map.iter().map(|(k, v)| (k.clone(), avro(v))).collect()),
    }
}

fn written_by(schema: &Schema, json: Value) -> Vec<u8> {
    let value = avro(&json).resolve(schema).unwrap();
    let body = apache_avro::writer::datum::GenericDatumWriter::builder(schema)
        .build()
        .unwrap()
        .write_value_to_vec(value)
        .unwrap();
    framing::frame(9_999, &body)
}

fn read<E: EventSet>(schema: Schema, bytes: &[u8]) -> Result<Decoded<E>, DecodeError> {
    let schema = Arc::new(schema);
    E::decode_with(bytes, &move |id| (id == 9_999).then(|| WriterSchema { schema: schema.clone() }))
}

#[test]
fn a_newer_writers_enum_symbol_reads_as_unknown_even_inside_a_record_inside_an_array() {
    let newer = later(Topic::AgentEvents, "riverrun.agent.RunAdvanced", |text| {
        let steps = text["fields"].as_array_mut().unwrap().iter_mut().find(|f| f["name"] == "steps").unwrap();
        let kind =
            steps["type"]["items"]["fields"].as_array_mut().unwrap().iter_mut().find(|f| f["name"] == "kind").unwrap();
        kind["type"]["symbols"].as_array_mut().unwrap().push(json!("vote"));
    });
    let bytes = written_by(
        &newer,
        json!({"run_id": RunId::derive(&["x"]).to_string(), "epoch": 1, "steps": [{"seq": 1, "kind": "vote", "agent": "react", "text": null, "tool": null, "usage": null, "at": 5}]}),
    );
    let Decoded::Event(AgentEvent::RunAdvanced(event)) = read(newer, &bytes).unwrap() else { panic!("another event") };
    assert_eq!(
        event.steps,
        [Step { seq: 1, kind: StepKind::Unknown, agent: "react".into(), text: None, tool: None, usage: None, at: 5 }]
    );
}

#[test]
fn a_newer_writers_enum_symbol_inside_a_record_inside_a_union_reads_as_unknown() {
    let newer = later(Topic::AgentEvents, "riverrun.agent.RunAdvanced", |text| {
        let steps = text["fields"].as_array_mut().unwrap().iter_mut().find(|f| f["name"] == "steps").unwrap();
        let tool =
            steps["type"]["items"]["fields"].as_array_mut().unwrap().iter_mut().find(|f| f["name"] == "tool").unwrap();
        let effect =
            tool["type"][1]["fields"].as_array_mut().unwrap().iter_mut().find(|f| f["name"] == "effect").unwrap();
        effect["type"]["symbols"].as_array_mut().unwrap().push(json!("transactional"));
    });
    let tool = json!({"call_id": "c", "name": "pay", "arguments_json": "{}", "effect": "transactional", "result_json": null, "result_blob": null, "error": null, "duration_ms": null});
    let bytes = written_by(
        &newer,
        json!({"run_id": RunId::derive(&["x"]).to_string(), "epoch": 1, "steps": [{"seq": 1, "kind": "tool_call", "agent": "react", "text": null, "tool": tool, "usage": null, "at": 5}]}),
    );
    let Decoded::Event(AgentEvent::RunAdvanced(event)) = read(newer, &bytes).unwrap() else { panic!("another event") };
    assert_eq!(event.steps[0].tool.as_ref().unwrap().effect, riverrun_schemas::agent::ToolEffect::Unknown);
}

#[test]
fn a_newer_writers_added_fields_are_skipped_also_nested_ones() {
    let newer = later(Topic::AgentEvents, "riverrun.agent.RunFinished", |text| {
        let fields = text["fields"].as_array_mut().unwrap();
        let usage = fields.iter_mut().find(|f| f["name"] == "usage").unwrap();
        usage["type"]["fields"]
            .as_array_mut()
            .unwrap()
            .insert(0, json!({"name": "cached_tokens", "type": ["null", "long"], "default": null}));
        usage["default"]["cached_tokens"] = Value::Null;
        fields.insert(1, json!({"name": "cluster", "type": "string", "default": "none"}));
    });
    let run_id = RunId::derive(&["x"]);
    let bytes = written_by(
        &newer,
        json!({"run_id": run_id.to_string(), "cluster": "c1", "epoch": 3, "status": "succeeded", "agent": "react", "answer": "yes", "citations": [],
        "usage": {"cached_tokens": 9, "prompt_tokens": 1, "completion_tokens": 2, "cost_usd": null}, "stop_reason": "answered", "error": null, "at": 5}),
    );
    let Decoded::Event(AgentEvent::RunFinished(RunFinished { epoch, status, usage, .. })) =
        read(newer, &bytes).unwrap()
    else {
        panic!("another event")
    };
    assert_eq!((epoch, status, usage.prompt_tokens, usage.completion_tokens), (3, RunOutcome::Succeeded, 1, 2));
}

#[test]
fn an_unknown_record_type_is_named_and_skipped() {
    let schema = Schema::parse_str(r#"{"type":"record","namespace":"riverrun.agent","name":"RunPraised","fields":[{"name":"stars","type":"int","default":0}]}"#).unwrap();
    let bytes = written_by(&schema, json!({"stars": 5}));
    assert_eq!(
        read::<AgentEvent>(schema, &bytes).unwrap(),
        Decoded::UnknownType { record: "riverrun.agent.RunPraised".into() }
    );
}

#[test]
fn bytes_that_are_no_event_of_the_topic_say_why() {
    let other = registry::newest(Topic::AgentEvents, "riverrun.agent.RunClaimed").unwrap();
    for (bytes, code) in [
        (vec![], "bad_frame"),
        (vec![0, 0, 0], "bad_frame"),
        (b"{\"task\":1}".to_vec(), "bad_frame"),
        (framing::frame(4_000_000_000, b""), "unknown_schema_id"),
        (framing::frame(other.id, b""), "wrong_topic"),
        (framing::frame(2, b""), "bad_body"),
        (framing::frame(2, &[0xff; 40]), "bad_body"),
        (framing::frame(2, &[0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f]), "bad_body"),
    ] {
        assert_eq!(AgentCommand::decode(&bytes).unwrap_err().code(), code, "{bytes:?}");
    }
}

#[test]
fn bytes_left_over_are_refused() {
    let mut bytes =
        AgentCommand::from(riverrun_schemas::agent::CancelRun { run_id: RunId::derive(&["x"]), reason: None, at: 1 })
            .encode()
            .unwrap();
    bytes.push(0);
    assert_eq!(AgentCommand::decode(&bytes).unwrap_err().code(), "bad_body");
}

proptest! {
    #[test]
    fn no_bytes_make_the_decoder_panic(id in 0u32..100, body in proptest::collection::vec(any::<u8>(), 0..200)) {
        let bytes = framing::frame(id, &body);
        let _ = AgentCommand::decode(&bytes);
        let _ = AgentEvent::decode(&bytes);
        let _ = riverrun_schemas::ingest::IngestEvent::decode(&bytes);
        let _ = riverrun_schemas::ingest::EmbeddingEvent::decode(&bytes);
    }
}
