#!/usr/bin/env python3
"""langchain-openai and instructor, unmodified, against the real binary: a loop of
tools, structured output, streams, Responses, strict modes. The gate has a part of
it (tests/e2e/test_frameworks.py), with the packages that it pins; here both bring
the releases that they ask for.

    python3 -m venv /tmp/clients
    /tmp/clients/bin/pip install langchain-openai instructor
    /tmp/clients/bin/python tests/conformance/clients/clients.py

MILLRACE_BINARY and MILLRACE_CACHE name another program and cache. Prints a line
for each check; the exit status is 1 when one fails.
"""
import asyncio
import json
import os
import pathlib
import subprocess
import sys
import traceback
from typing import Literal

import instructor
import openai
from langchain_core.messages import HumanMessage, ToolMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI, OpenAI
from pydantic import BaseModel, Field, field_validator

REPO = pathlib.Path(__file__).resolve().parents[3]
BINARY = os.environ.get("MILLRACE_BINARY", REPO / "build/release/bin/millrace")
CACHE = pathlib.Path(os.environ.get(
    "MILLRACE_CACHE", pathlib.Path.home() / ".cache/millrace"))
MODEL = CACHE / "models" / "SmolLM2-135M-Instruct.Q4_1.gguf"
# The model says what the last message says, so that a check knows its calls.
COPYING = REPO / "tests/e2e/copying.jinja"
CALL = ('<tool_call>\n{"name": "get_weather", "arguments": '
        '{"city": "Paris"}}\n</tool_call>')


class City(BaseModel):
    """A city and where it is."""
    name: str = Field(max_length=20)
    continent: Literal["Asia", "Europe", "Africa"]
    millions: int = Field(ge=0, le=50)


class Long(BaseModel):
    text: str = Field(max_length=30)

    @field_validator("text")
    @classmethod
    def of_capitals(cls, text):
        return text.upper()


@tool
def get_weather(city: str) -> str:
    """The weather of a city."""
    return f"It is sunny in {city}."


class Server:
    def __init__(self, *flags):
        self.process = subprocess.Popen(
            [BINARY, "serve", MODEL, "--http-port", "0", "--grpc-port", "-1",
             "--log-format", "json", *map(str, flags)],
            stderr=subprocess.PIPE, text=True)
        for text in self.process.stderr:
            event = json.loads(text)
            if event.get("event") == "ready":
                break
        else:
            raise SystemExit("the server did not start")
        self.url = f"http://127.0.0.1:{event['http_port']}/v1"
        self.name = MODEL.stem

    def langchain(self, **fields):
        return ChatOpenAI(base_url=self.url, api_key="none", model=self.name,
                          max_retries=0, temperature=0, timeout=300,
                          **{"max_tokens": 100, **fields})

    def instructor(self, mode):
        return instructor.from_openai(
            openai.OpenAI(base_url=self.url, api_key="none", max_retries=0,
                          timeout=300), mode=mode)


def langchain_chat(plain, _):
    chat = plain.langchain(max_tokens=12)
    whole = chat.invoke("Name a colour.")
    assert whole.content and whole.usage_metadata["output_tokens"] <= 12
    assert whole.response_metadata["finish_reason"] in ("stop", "length")
    pieces = list(chat.stream("Name a colour."))
    assert "".join(piece.content for piece in pieces) == whole.content
    assert len(pieces) > 3
    both = chat.batch(["Name a colour.", "Name a river."])
    assert both[0].content == whole.content and both[1].content

    async def one():
        return await chat.ainvoke("Name a colour.")
    assert asyncio.run(one()).content == whole.content


def langchain_text(plain, _):
    text = OpenAI(base_url=plain.url, api_key="none", model=plain.name,
                  max_tokens=8, temperature=0, max_retries=0)
    whole = text.invoke("Once upon a time")
    assert whole and "".join(text.stream("Once upon a time")) == whole


def langchain_responses(plain, _):
    chat = plain.langchain(use_responses_api=True, max_tokens=12)
    whole = chat.invoke("Name a colour.")
    assert whole.text
    assert "".join(piece.text for piece in
                   chat.stream("Name a colour.")) == whole.text


def langchain_structured(plain, _):
    for method in ("json_schema", "function_calling"):
        chat = plain.langchain().with_structured_output(City, method=method)
        city = chat.invoke("Tell me about Tokyo.")
        assert isinstance(city, City), (method, city)


def langchain_tools(_, copier):
    chat = copier.langchain().bind_tools([get_weather])
    messages = [HumanMessage(CALL)]
    answer = chat.invoke(messages)
    (call,) = answer.tool_calls
    assert (call["name"], call["args"]) == ("get_weather", {"city": "Paris"})
    said = get_weather.invoke(call)
    assert isinstance(said, ToolMessage)
    last = chat.invoke([*messages, answer, said])
    assert last.content == "It is sunny in Paris." and not last.tool_calls
    streamed = None
    for piece in chat.stream(messages):
        streamed = piece if streamed is None else streamed + piece
    assert [(c["name"], c["args"]) for c in streamed.tool_calls] == [
        ("get_weather", {"city": "Paris"})]


def langchain_forced(plain, _):
    chat = plain.langchain().bind_tools([get_weather],
                                        tool_choice="get_weather")
    (call,) = chat.invoke("How is the weather in Rome?").tool_calls
    assert isinstance(call["args"]["city"], str)


def instructor_modes(plain, _):
    for mode in (instructor.Mode.TOOLS, instructor.Mode.JSON_SCHEMA,
                 instructor.Mode.TOOLS_STRICT):
        city = plain.instructor(mode).chat.completions.create(
            model=plain.name, response_model=City, max_tokens=100,
            temperature=0, max_retries=1,
            messages=[{"role": "user", "content": "Tell me about Tokyo."}])
        assert isinstance(city, City), mode


def instructor_streams(plain, _):
    client = plain.instructor(instructor.Mode.TOOLS)
    parts = list(client.chat.completions.create_partial(
        model=plain.name, response_model=City, max_tokens=100, temperature=0,
        messages=[{"role": "user", "content": "Tell me about Tokyo."}]))
    assert len(parts) > 2 and parts[-1].continent in ("Asia", "Europe",
                                                      "Africa")
    text, completion = client.chat.completions.create_with_completion(
        model=plain.name, response_model=Long, max_tokens=60, temperature=0,
        messages=[{"role": "user", "content": "Say hello."}])
    assert text.text == text.text.upper()
    assert completion.usage.completion_tokens > 0


def main():
    failed = 0
    plain = Server()
    copier = Server("--chat-template", COPYING)
    try:
        for check in (langchain_chat, langchain_text, langchain_responses,
                      langchain_structured, langchain_tools, langchain_forced,
                      instructor_modes, instructor_streams):
            try:
                check(plain, copier)
                print("ok    ", check.__name__, flush=True)
            except Exception:  # the next check runs all the same
                failed += 1
                print("FAILED", check.__name__, flush=True)
                traceback.print_exc()
    finally:
        for server in (plain, copier):
            server.process.kill()
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
