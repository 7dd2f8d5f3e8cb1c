// What a JavaScript program does with OpenAI's API: node client.mjs URL. Prints one line of JSON with what it saw.
import OpenAI from "openai";

const client = new OpenAI({ baseURL: process.argv[2], apiKey: "unused", maxRetries: 0, timeout: 60_000 });
const say = (content) => [{ role: "user", content }];
const seen = { models: [] };

for await (const model of client.models.list()) seen.models.push(model.id);

const whole = await client.chat.completions.create({ model: "default", messages: say("hello"), temperature: 0, max_tokens: 20 });
seen.whole = [whole.choices[0].message.content, whole.choices[0].finish_reason, whole.usage.total_tokens];

let text = "";
let usage = null;
const pieces = await client.chat.completions.create({
  model: "ollama/stub",
  messages: say("hello"),
  stream: true,
  stream_options: { include_usage: true },
});
for await (const chunk of pieces) {
  text += chunk.choices[0]?.delta?.content ?? "";
  usage = chunk.usage ?? usage;
}
seen.streamed = [text, usage.total_tokens];

const calculator = {
  type: "function",
  function: {
    name: "calculator",
    description: "calculates",
    parameters: { type: "object", properties: { expression: { type: "string" } }, required: ["expression"] },
  },
};
const messages = say("[[steps=1 id=openai-js-tools]] go");
const first = await client.chat.completions.create({ model: "default", messages, tools: [calculator] });
const call = first.choices[0].message.tool_calls[0];
messages.push(first.choices[0].message, { role: "tool", tool_call_id: call.id, content: "1" });
const last = await client.chat.completions.create({ model: "default", messages, tools: [calculator] });
seen.tools = [call.function.name, JSON.parse(call.function.arguments), last.choices[0].message.content];

// Its helper puts the pieces together itself, and is strict about them.
const run = client.chat.completions.stream({ model: "agent/react", messages: say("[[steps=2 id=openai-js-agent]] count") });
let thoughts = "";
for await (const chunk of run) thoughts += chunk.choices[0]?.delta?.reasoning_content ?? "";
seen.agent = [thoughts, await run.finalContent()];

const embedded = await client.embeddings.create({ model: "default", input: ["a river", "a log"] });
seen.embedded = embedded.data.map((one) => one.embedding.length);

try {
  await client.chat.completions.create({ model: "default", messages: say("x"), n: 2 });
} catch (error) {
  seen.refused = [error instanceof OpenAI.BadRequestError, error.param, error.code];
}
try {
  await client.embeddings.create({ model: "nobody-has-this", input: "x" });
} catch (error) {
  seen.missing = [error instanceof OpenAI.NotFoundError, error.code];
}
console.log(JSON.stringify(seen));
