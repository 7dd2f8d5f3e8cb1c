//! Chat templates: the model's own Jinja template from its GGUF file, rendered as `transformers` does (trimmed blocks, Python methods,
//! `tojson` like `json.dumps`).

use std::borrow::Cow;

use chrono::Local;
use chrono::format::StrftimeItems;
use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Serde, Value as JinjaValue};
use minijinja::{Environment, Error, ErrorKind, context};
use serde_json::{Value, json};

use super::is_constrained;
use super::json::{python_json, to_json};
use super::thoughts::{self, MARKS, Marks};
use crate::provider::{ChatRequest, Message, Role, ToolCall, ToolSpec};
use crate::remote::openai::{short_id, wire_tools};

/// The format that is used for models that bring none.
pub(super) const CHATML: &str = "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}";

/// Steps of a template; far more than any real one takes on a long conversation, and a bound on a hostile one.
const FUEL: u64 = 10_000_000;

/// A model's chat template.
#[derive(Debug, Clone)]
pub(super) struct ChatTemplate {
    source: String,
    bos: String,
    eos: String,
    /// Whether it renders tools itself; otherwise they are described in the system message, in the format of Hermes and Qwen.
    knows_tools: bool,
}

/// A conversation as its model reads it, up to where the assistant begins to write.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Rendered {
    pub(super) prompt: String,
    /// The block of thoughts that the prompt leaves open.
    pub(super) opened: Option<&'static Marks>,
}

/// How a conversation is shown to a template; each is for those that refuse the ones before it.
#[derive(Debug, Clone, Copy)]
enum Form {
    /// As it is, with tools as text where the template has no place for them.
    Whole,
    /// The text of the system opens the first message of the user.
    SystemInUser,
    /// Calls have ids of nine letters and digits, without which Mistral's templates refuse them.
    ShortIds,
    /// Nothing but texts of user and assistant by turns: Gemma's and others insist on it, and several results of tools come one behind the other.
    ByTurns,
}

/// The messages and the tools that a template gets.
type Shown<'r> = (Cow<'r, [Message]>, &'r [ToolSpec]);

const NO_TOOLS: &[ToolSpec] = &[];

const FORMS: [Form; 4] = [Form::Whole, Form::SystemInUser, Form::ShortIds, Form::ByTurns];

impl ChatTemplate {
    pub(super) fn new(source: String, bos: String, eos: String) -> Self {
        let source = without_marks(&source);
        let knows_tools = source.contains("tools") && source.contains("tool_call");
        ChatTemplate { source, bos, eos, knows_tools }
    }

    /// The prompt of a request. `guard` is applied to every text that did not come from the template; it has to change marks of thoughts, or
    /// a text at the end of a prompt could open a block.
    pub(super) fn render(&self, request: &ChatRequest, guard: &dyn Fn(&str) -> String) -> Result<Rendered, String> {
        // What has a form leaves no place for thoughts.
        let thinking = if is_constrained(request) { Some(false) } else { request.thinking };
        let mut refused = String::new();
        for form in FORMS {
            let Some((messages, tools)) = self.shown(form, request) else { continue };
            match self.render_once(&messages, &guarded(wire_tools(tools), guard), thinking, guard) {
                Err(error) if is_refusal(&error) => refused = error.to_string(),
                Err(error) => return Err(explained(&error)),
                Ok(prompt) => return Ok(self.begun(prompt, thinking, request)),
            }
        }
        Err(refused)
    }

    /// The prompt with its block of thoughts closed where there are to be none: not every template has a switch for that.
    fn begun(&self, mut prompt: String, thinking: Option<bool>, request: &ChatRequest) -> Rendered {
        let opened = thoughts::left_open(&prompt);
        if thinking != Some(false) {
            return Rendered { prompt, opened };
        }
        if let Some(marks) = opened {
            prompt.truncate(prompt.trim_end().len());
            prompt.push_str(&format!("\n\n{}\n\n", marks.close));
        } else if request.thinking == Some(false) && !self.source.contains(SWITCH) {
            // The templates of models that think know their marks, since they leave earlier thoughts out.
            if let Some(marks) = MARKS.iter().find(|marks| self.source.contains(marks.close)) {
                prompt.push_str(&format!("{}\n\n{}\n\n", marks.open, marks.close));
            }
        }
        Rendered { prompt, opened: None }
    }

    /// The messages and tools in a form; none where it is that of one before it.
    fn shown<'r>(&self, form: Form, request: &'r ChatRequest) -> Option<Shown<'r>> {
        let whole = || -> Shown<'r> {
            match self.knows_tools {
                true => (Cow::Borrowed(request.messages.as_slice()), request.tools.as_slice()),
                false => (Cow::Owned(lower_tools(request)), NO_TOOLS),
            }
        };
        match form {
            Form::Whole => Some(whole()),
            Form::SystemInUser => {
                let (messages, tools) = whole();
                let has_system = messages.first().is_some_and(|first| first.role == Role::System);
                has_system.then(|| (Cow::Owned(merge_system(&messages)), tools))
            }
            Form::ShortIds => {
                let calls = request.messages.iter().any(|message| !message.tool_calls.is_empty());
                let shortened = || request.messages.iter().map(with_short_ids).collect::<Vec<Message>>();
                (self.knows_tools && calls).then(|| (Cow::Owned(shortened()), request.tools.as_slice()))
            }
            Form::ByTurns => Some((Cow::Owned(by_turns(&lower_tools(request))), NO_TOOLS)),
        }
    }

    fn render_once(
        &self,
        messages: &[Message],
        tools: &Value,
        thinking: Option<bool>,
        guard: &dyn Fn(&str) -> String,
    ) -> Result<String, Error> {
        let mut environment = Environment::new();
        environment.set_syntax(SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build()?);
        environment.set_unknown_method_callback(minijinja_contrib::pycompat::unknown_method_callback);
        environment.set_fuel(Some(FUEL));
        environment.add_filter("tojson", to_json);
        environment.add_function("raise_exception", |message: String| -> Result<String, Error> {
            Err(Error::new(ErrorKind::InvalidOperation, format!("{REFUSAL}{message}")))
        });
        environment.add_function("strftime_now", now_in);
        let messages: Vec<Value> = messages.iter().map(|message| guarded(wire(message), guard)).collect();
        let tools = tools.as_array().filter(|tools| !tools.is_empty());
        environment.template_from_str(&self.source)?.render(context! {
            messages => Serde(&messages),
            tools => Serde(tools),
            add_generation_prompt => true,
            // Templates ask whether it is defined.
            enable_thinking => thinking.map_or(JinjaValue::UNDEFINED, JinjaValue::from),
            bos_token => self.bos.as_str(),
            eos_token => self.eos.as_str(),
        })
    }
}

/// The time, in the form that a template asks for: some, as SmolLM3's, tell the model which day it is, and fail where they can't.
fn now_in(form: String) -> Result<String, Error> {
    let items = StrftimeItems::new(&form).parse().map_err(|error| {
        Error::new(ErrorKind::InvalidOperation, format!("strftime_now can't write {form:?}: {error}"))
    })?;
    Ok(Local::now().format_with_items(items.iter()).to_string())
}

/// What says whether a model thinks, in the templates of Qwen3, SmolLM3 and others.
const SWITCH: &str = "enable_thinking";

/// An error of a template, with what is known of its cause.
fn explained(error: &Error) -> String {
    let formats = error.detail().is_some_and(|detail| detail.contains("use % operator") && detail.contains("string"));
    let cause = if formats { "; texts are not formatted with % here: the filter `format` does the same" } else { "" };
    format!("{error}{cause}")
}

const REFUSAL: &str = "the chat template refuses: ";

fn is_refusal(error: &Error) -> bool {
    error.detail().is_some_and(|detail| detail.starts_with(REFUSAL))
}

fn wire(message: &Message) -> Value {
    let mut value = json!({"role": message.role.as_str(), "content": message.content});
    if !message.tool_calls.is_empty() {
        let calls = message.tool_calls.iter().map(|call| {
            json!({"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}})
        });
        value["tool_calls"] = calls.collect();
    }
    if let Some(id) = &message.tool_call_id {
        value["tool_call_id"] = json!(id);
    }
    value
}

/// Applies `guard` to every string within a value.
fn guarded(value: Value, guard: &dyn Fn(&str) -> String) -> Value {
    match value {
        Value::String(text) => Value::String(guard(&text)),
        Value::Array(items) => items.into_iter().map(|item| guarded(item, guard)).collect(),
        Value::Object(map) => {
            Value::Object(map.into_iter().map(|(key, item)| (guard(&key), guarded(item, guard))).collect())
        }
        other => other,
    }
}

/// Writes tools, calls and results as plain text, for templates that know only roles and contents.
fn lower_tools(request: &ChatRequest) -> Vec<Message> {
    let mut messages: Vec<Message> = Vec::with_capacity(request.messages.len() + 1);
    for message in &request.messages {
        let lowered = match message.role {
            Role::Assistant if !message.tool_calls.is_empty() => {
                let calls: Vec<String> = message.tool_calls.iter().map(call_text).collect();
                let text = [message.content.as_str(), &calls.join("\n")].join("\n");
                Message::assistant(text.trim())
            }
            Role::Tool => Message::user(format!("<tool_response>\n{}\n</tool_response>", message.content)),
            Role::System | Role::User | Role::Assistant => message.clone(),
        };
        messages.push(lowered);
    }
    if request.tools.is_empty() {
        return messages;
    }
    let described = describe_tools(request);
    match messages.first_mut().filter(|first| first.role == Role::System) {
        Some(system) => {
            system.content.push_str("\n\n");
            system.content.push_str(&described);
        }
        None => messages.insert(0, Message::system(described)),
    }
    messages
}

fn call_text(call: &ToolCall) -> String {
    let body = python_json(&json!({"name": call.name, "arguments": call.arguments}));
    format!("<tool_call>\n{body}\n</tool_call>")
}

fn describe_tools(request: &ChatRequest) -> String {
    let tools = wire_tools(&request.tools);
    let lines: Vec<String> = tools.as_array().into_iter().flatten().map(python_json).collect();
    format!(
        "# Tools\n\nYou may call one or more functions to assist with the user query.\n\nYou are provided with function signatures within <tools></tools> XML tags:\n<tools>\n{}\n</tools>\n\nFor each function call, return a json object with function name and arguments within <tool_call></tool_call> XML tags:\n<tool_call>\n{{\"name\": <function-name>, \"arguments\": <args-json-object>}}\n</tool_call>",
        lines.join("\n")
    )
}

fn merge_system(messages: &[Message]) -> Vec<Message> {
    let Some((system, rest)) = messages.split_first() else { return Vec::new() };
    let mut rest = rest.to_vec();
    match rest.first_mut().filter(|first| first.role == Role::User) {
        Some(user) => user.content = format!("{}\n\n{}", system.content, user.content),
        None => rest.insert(0, Message::user(system.content.clone())),
    }
    rest
}

fn with_short_ids(message: &Message) -> Message {
    let shortened = |call: &ToolCall| ToolCall { id: short_id(&call.id), ..call.clone() };
    Message {
        tool_calls: message.tool_calls.iter().map(shortened).collect(),
        tool_call_id: message.tool_call_id.as_deref().map(short_id),
        ..message.clone()
    }
}

/// Texts of one side that follow each other, as one. What else is no assistant's is the user's.
fn by_turns(messages: &[Message]) -> Vec<Message> {
    let mut turns: Vec<Message> = Vec::with_capacity(messages.len());
    for message in messages {
        let role = if message.role == Role::Assistant { Role::Assistant } else { Role::User };
        match turns.last_mut().filter(|last| last.role == role) {
            Some(last) => last.content = format!("{}\n\n{}", last.content, message.content),
            None => turns.push(Message { role, ..message.clone() }),
        }
    }
    turns
}

/// The template without `{% generation %}`, with which `transformers` marks what is trained on: for a prompt it means nothing.
fn without_marks(source: &str) -> String {
    let mut plain = String::with_capacity(source.len());
    let mut rest = source;
    while let Some(open) = rest.find("{%") {
        let body = open + 2;
        let Some(length) = rest[body..].find("%}") else { break };
        let end = body + length + 2;
        let (tag, name) = (&rest[open..end], &rest[body..body + length]);
        plain.push_str(&rest[..open]);
        match name.trim_matches(|c: char| matches!(c, '-' | '+') || c.is_whitespace()) {
            "generation" => plain.push_str(&tag.replace("generation", "if true")),
            "endgeneration" => plain.push_str(&tag.replace("endgeneration", "endif")),
            _ => plain.push_str(tag),
        }
        rest = &rest[end..];
    }
    plain.push_str(rest);
    plain
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::provider::ToolSpec;

    /// The template of Qwen2.5, shortened to its tool branch and the plain one.
    const QWEN: &str = include_str!("../../../tests/data/qwen2.5.jinja");
    /// The template of Gemma 3.
    const GEMMA: &str = include_str!("../../../tests/data/gemma3.jinja");

    fn rendered(source: &str, request: &ChatRequest) -> Rendered {
        let template = ChatTemplate::new(source.to_owned(), "<s>".into(), "</s>".into());
        template.render(request, &|text| text.to_owned()).unwrap()
    }

    fn render(source: &str, request: &ChatRequest) -> String {
        rendered(source, request).prompt
    }

    fn request(messages: Vec<Message>) -> ChatRequest {
        ChatRequest { messages, ..ChatRequest::default() }
    }

    fn clock() -> ToolSpec {
        ToolSpec {
            name: "clock".into(),
            description: "The <time> & \"date\"".into(),
            parameters: json!({"type": "object", "properties": {}}),
        }
    }

    #[test]
    fn given_a_plain_chat_when_it_is_rendered_then_it_is_chatml() {
        let messages = vec![
            Message::system("Be brief."),
            Message::user("Hi"),
            Message::assistant("Hello"),
            Message::user("Grüße"),
        ];
        let expected = "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\nHello<|im_end|>\n<|im_start|>user\nGrüße<|im_end|>\n<|im_start|>assistant\n";
        assert_eq!(render(QWEN, &request(messages.clone())), expected);
        assert_eq!(render(CHATML, &request(messages)), expected);
    }

    #[test]
    fn given_tools_when_qwen_renders_them_then_the_json_is_as_python_writes_it() {
        let call = ToolCall { id: "c".into(), name: "clock".into(), arguments: json!({"zone": "UTC"}) };
        let mut request = request(vec![
            Message::user("time?"),
            Message { tool_calls: vec![call], ..Message::assistant("") },
            Message::tool("c", "12:00"),
        ]);
        request.tools = vec![clock()];
        let text = render(QWEN, &request);
        assert!(text.contains(r#"{"type": "function", "function": {"name": "clock", "description": "The <time> & \"date\"", "parameters": {"type": "object", "properties": {}}}}"#), "{text}");
        assert!(
            text.contains("<tool_call>\n{\"name\": \"clock\", \"arguments\": {\"zone\": \"UTC\"}}\n</tool_call>"),
            "{text}"
        );
        assert!(
            text.ends_with(
                "<|im_start|>user\n<tool_response>\n12:00\n</tool_response><|im_end|>\n<|im_start|>assistant\n"
            ),
            "{text}"
        );
    }

    #[test]
    fn given_a_template_without_tools_when_tools_are_offered_then_the_system_message_describes_them() {
        let mut request =
            request(vec![Message::system("Be brief."), Message::user("time?"), Message::tool("c", "12:00")]);
        request.tools = vec![clock()];
        let text = render(CHATML, &request);
        assert!(text.starts_with("<|im_start|>system\nBe brief.\n\n# Tools"), "{text}");
        assert!(text.contains("<tools>\n{\"type\": \"function\""), "{text}");
        assert!(text.contains("<|im_start|>user\n<tool_response>\n12:00"), "{text}");
    }

    #[test]
    fn given_a_template_that_refuses_system_messages_when_one_comes_then_it_opens_the_first_user_message() {
        let strict = "{% if messages[0]['role'] == 'system' %}{{ raise_exception('no system') }}{% endif %}{% for m in messages %}[{{ m.role }}] {{ m.content | trim }}\n{% endfor %}";
        assert_eq!(render(strict, &request(vec![Message::system("S"), Message::user("U ")])), "[user] S\n\nU\n");
    }

    /// A user, an assistant who calls two tools, and what they say.
    fn two_calls() -> ChatRequest {
        let call = |id: &str| ToolCall { id: id.into(), name: "clock".into(), arguments: json!({}) };
        let calls = vec![call("call_1"), call("call_2")];
        let mut request = request(vec![
            Message::system("Be brief."),
            Message::user("time?"),
            Message { tool_calls: calls, ..Message::assistant("") },
            Message::tool("call_1", "12:00"),
            Message::tool("call_2", "13:00"),
        ]);
        request.tools = vec![clock()];
        request
    }

    #[test]
    fn given_gemmas_template_when_a_conversation_has_a_system_then_it_opens_the_first_turn() {
        let messages = vec![
            Message::system("Be brief."),
            Message::user(" Hi "),
            Message::assistant("Hello"),
            Message::user("So?"),
        ];
        let expected = "<s><start_of_turn>user\nBe brief.\n\nHi<end_of_turn>\n<start_of_turn>model\nHello<end_of_turn>\n<start_of_turn>user\nSo?<end_of_turn>\n<start_of_turn>model\n";
        assert_eq!(render(GEMMA, &request(messages)), expected);
    }

    #[test]
    fn given_a_template_that_insists_on_turns_when_two_tools_answer_then_their_results_are_one_turn() {
        let text = render(GEMMA, &two_calls());
        assert!(text.starts_with("<s><start_of_turn>user\nBe brief.\n\n# Tools"), "{text}");
        assert_eq!(text.matches("<start_of_turn>model").count(), 2, "{text}");
        let results = "<start_of_turn>user\n<tool_response>\n12:00\n</tool_response>\n\n<tool_response>\n13:00\n</tool_response><end_of_turn>\n<start_of_turn>model\n";
        assert!(text.ends_with(results), "{text}");
    }

    #[test]
    fn given_a_template_that_wants_short_ids_when_tools_are_called_then_call_and_result_have_the_same_one() {
        // The rule of Mistral's templates.
        let strict = "{%- for m in messages -%}{%- if m.tool_calls -%}{%- for c in m.tool_calls -%}{%- if c.id | length != 9 -%}{{ raise_exception('Tool call IDs should be alphanumeric strings with length 9!') }}{%- endif -%}[{{ c.id }}]{%- endfor -%}{%- elif m.role == 'tool' -%}[{{ m.tool_call_id }}]{%- endif -%}{%- endfor -%}{%- if tools -%}tools{%- endif -%}";
        let (first, second) = (short_id("call_1"), short_id("call_2"));
        assert_eq!(render(strict, &two_calls()), format!("[{first}][{second}][{first}][{second}]tools"));
    }

    #[test]
    fn given_a_template_that_refuses_every_form_when_it_is_rendered_then_its_own_words_are_the_error() {
        let never = ChatTemplate::new("{{ raise_exception('not today') }}".into(), String::new(), String::new());
        let error = never.render(&two_calls(), &|text| text.to_owned()).unwrap_err();
        assert!(error.contains("not today"), "{error}");
    }

    #[test]
    fn given_a_template_that_marks_what_is_trained_on_when_it_is_rendered_then_the_marks_mean_nothing() {
        let marked = "{% for m in messages %}{% if m.role == 'assistant' %}<{%- generation -%} {{ m.content }} {%- endgeneration -%}>{% endif %}{% endfor %}{% if add_generation_prompt %}!{% endif %}";
        assert_eq!(render(marked, &request(vec![Message::user("a"), Message::assistant("b")])), "<b>!");
        for plain in ["a {% if x %} {{ '{%' }} b", "{%}", "{% generation", "{{ generation }}"] {
            assert_eq!(without_marks(plain), plain);
        }
    }

    #[test]
    fn given_a_template_that_tells_the_day_when_it_is_rendered_then_it_is_a_day_and_a_form_that_is_none_is_refused() {
        let day = render("{{ strftime_now('%Y-%m-%d') }}", &request(vec![Message::user("x")]));
        assert!(day.parse::<chrono::NaiveDate>().is_ok(), "{day}");
        let template = ChatTemplate::new("{{ strftime_now('%!') }}".into(), String::new(), String::new());
        let error = template.render(&request(vec![]), &|text| text.to_owned()).unwrap_err();
        assert!(error.contains("%!"), "{error}");
    }

    #[test]
    fn given_a_template_that_reads_a_conversation_from_its_end_when_it_is_rendered_then_it_can() {
        let backwards = "{%- set ns = namespace(last='') -%}{%- for m in messages[::-1] -%}{%- if m.content is string and not (m.content.startswith('<') and m.content.endswith('>')) and not ns.last -%}{%- set ns.last = m.content.split('</think>')[-1].lstrip('\\n') -%}{%- endif -%}{%- endfor -%}{{ ns.last }}";
        let asked = request(vec![Message::user("a"), Message::assistant("x</think>\n\nb"), Message::user("<c>")]);
        assert_eq!(render(backwards, &asked), "b");
    }

    #[test]
    fn given_python_methods_and_a_hostile_loop_when_they_run_then_the_first_work_and_the_second_ends() {
        let python = "{% for m in messages %}{% if m.content.startswith('x') %}{{ m.content.split('y')[-1].strip() }}{% endif %}{% endfor %}";
        assert_eq!(render(python, &request(vec![Message::user("xyz ")])), "z");
        let endless = "{% for a in range(9999) %}{% for b in range(9999) %}{% for c in range(9999) %}{% endfor %}{% endfor %}{% endfor %}";
        let template = ChatTemplate::new(endless.into(), String::new(), String::new());
        assert!(template.render(&request(vec![]), &|text| text.to_owned()).is_err());
    }

    /// How Qwen3's template leaves out earlier thoughts and takes its switch; how DeepSeek-R1's opens a block; how one without either begins.
    const QWEN3: &str = "{%- for m in messages -%}{%- set text = m.content.split('</think>')[-1].lstrip('\\n') -%}{{ '<|im_start|>' + m.role + '\\n' + text + '<|im_end|>\\n' }}{%- endfor -%}{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\\n' -}}{%- if enable_thinking is defined and enable_thinking is false -%}{{- '<think>\\n\\n</think>\\n\\n' -}}{%- endif -%}{%- endif -%}";
    const OPENING: &str =
        "{%- for m in messages -%}[{{ m.content.split('</think>')[-1] }}]{%- endfor -%}<assistant>{{- '<think>\\n' -}}";
    const EARLIER: &str = "{%- for m in messages -%}[{{ m.content.split('</think>')[-1] }}]{%- endfor -%}<assistant>";

    fn thinking(thinking: Option<bool>) -> ChatRequest {
        ChatRequest { thinking, ..request(vec![Message::user("a")]) }
    }

    #[test]
    fn given_templates_of_models_that_think_when_thinking_is_on_or_off_then_the_answer_begins_in_its_place() {
        let think = &MARKS[0];
        let qwen = "<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\n";
        for (source, switch, prompt, opened) in [
            (QWEN3, None, qwen.to_owned(), None),
            (QWEN3, Some(true), qwen.to_owned(), None),
            (QWEN3, Some(false), format!("{qwen}<think>\n\n</think>\n\n"), None),
            (OPENING, None, "[a]<assistant><think>\n".to_owned(), Some(think)),
            (OPENING, Some(true), "[a]<assistant><think>\n".to_owned(), Some(think)),
            (OPENING, Some(false), "[a]<assistant><think>\n\n</think>\n\n".to_owned(), None),
            (EARLIER, None, "[a]<assistant>".to_owned(), None),
            (EARLIER, Some(false), "[a]<assistant><think>\n\n</think>\n\n".to_owned(), None),
        ] {
            assert_eq!(rendered(source, &thinking(switch)), Rendered { prompt, opened }, "{switch:?} of {source}");
        }
        assert_eq!(render(CHATML, &thinking(Some(false))), render(CHATML, &thinking(None)), "it does not think");
    }

    #[test]
    fn given_an_answer_with_a_form_when_its_prompt_is_rendered_then_no_block_of_thoughts_is_open_and_none_is_added() {
        let formed = |thinking| ChatRequest { response_schema: Some(json!({})), ..self::thinking(thinking) };
        for switch in [None, Some(true)] {
            assert_eq!(rendered(OPENING, &formed(switch)).opened, None);
            assert!(render(OPENING, &formed(switch)).ends_with("<think>\n\n</think>\n\n"));
            assert!(render(QWEN3, &formed(switch)).ends_with("<think>\n\n</think>\n\n"));
            assert_eq!(render(EARLIER, &formed(switch)), "[a]<assistant>");
        }
    }

    #[test]
    fn given_a_template_that_formats_with_a_percent_sign_when_it_fails_then_the_message_says_what_does_it_here() {
        for source in ["{{ '%s' % messages[0].content }}", "{{ '%d' % 3 }}"] {
            let template = ChatTemplate::new(source.into(), String::new(), String::new());
            let error = template.render(&thinking(None), &|text| text.to_owned()).unwrap_err();
            assert!(error.contains("the filter `format`"), "{error}");
        }
        assert_eq!(render("{{ '%s!' | format(messages[0].content) }}{{ 7 % 4 }}", &thinking(None)), "a!3");
    }
}
