"""Talks to a running `riverrun serve` with OpenAI's own client: `pip install openai`, then `python examples/openai_client.py`."""

import os
import sys

from openai import APIConnectionError, OpenAI

client = OpenAI(base_url=os.environ.get("RIVERRUN_URL", "http://127.0.0.1:8000") + "/v1",
                api_key=os.environ.get("RIVERRUN_API_TOKEN", "unused"))

try:
    print("models:", ", ".join(model.id for model in client.models.list()))
except APIConnectionError as error:
    sys.exit(f"no server answers at {client.base_url}: {error}; start one with `riverrun serve`, or name its address in RIVERRUN_URL")

stream = client.chat.completions.create(
    model="default", stream=True, messages=[{"role": "user", "content": "Name one river."}])
for chunk in stream:
    print(chunk.choices[0].delta.content or "", end="", flush=True)
print()

# An agent is a run on the log: `riverrun runs ls` shows it.
run = client.chat.completions.create(
    model="agent/react", messages=[{"role": "user", "content": "What is 12 * 7? Use the calculator."}])
print("agent:", run.choices[0].message.content, f"({run.usage.total_tokens} tokens)")
