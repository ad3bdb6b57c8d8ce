"""langchain-openai and instructor, unmodified, against the real server: chats,
streams, tools and structured output. More of both, by hand:
tests/conformance/clients."""
import pathlib
from typing import Literal

import instructor
import openai
import pytest
from langchain_core.messages import HumanMessage, ToolMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from pydantic import BaseModel, Field

from conftest import MODEL_ID, start

# The model says what the last message says.
COPYING = pathlib.Path(__file__).with_name("copying.jinja")
CALL = ('<tool_call>\n{"name": "get_weather", "arguments": '
        '{"city": "Paris"}}\n</tool_call>')


class City(BaseModel):
    """A city and where it is."""
    name: str = Field(max_length=20)
    continent: Literal["Asia", "Europe", "Africa"]
    millions: int = Field(ge=0, le=50)


@tool
def get_weather(city: str) -> str:
    """The weather of a city."""
    return f"It is sunny in {city}."


def langchain(server, **fields):
    return ChatOpenAI(base_url=server.url + "/v1", api_key="none",
                      model=MODEL_ID, max_retries=0, temperature=0,
                      timeout=120, **{"max_tokens": 100, **fields})


@pytest.fixture(scope="module")
def held(client):
    """Skips where the server was built without structured output."""
    try:
        client.chat.completions.create(
            model=MODEL_ID, messages=[{"role": "user", "content": "a"}],
            max_tokens=1, response_format={"type": "json_object"})
    except openai.APIStatusError as error:
        if "xgrammar" in error.message:
            pytest.skip("this build has no structured output")
        raise
    return client


def test_langchain_invokes_and_streams(server):
    chat = langchain(server, max_tokens=12)
    whole = chat.invoke("Name a colour.")
    assert whole.content and whole.usage_metadata["output_tokens"] <= 12
    assert whole.response_metadata["finish_reason"] in ("stop", "length")
    pieces = list(chat.stream("Name a colour."))
    assert "".join(piece.content for piece in pieces) == whole.content
    assert len(pieces) > 3


def test_langchain_calls_tools_in_a_loop():
    with start("--chat-template", COPYING) as copier:
        chat = langchain(copier).bind_tools([get_weather])
        messages = [HumanMessage(CALL)]
        answer = chat.invoke(messages)
        (call,) = answer.tool_calls
        assert (call["name"], call["args"]) == ("get_weather",
                                                {"city": "Paris"})
        said = get_weather.invoke(call)
        assert isinstance(said, ToolMessage)
        last = chat.invoke([*messages, answer, said])
        assert last.content == "It is sunny in Paris." and not last.tool_calls
        streamed = None
        for piece in chat.stream(messages):
            streamed = piece if streamed is None else streamed + piece
        assert [(c["name"], c["args"]) for c in streamed.tool_calls] == [
            ("get_weather", {"city": "Paris"})]


def test_langchain_forces_a_call(server, held):
    chat = langchain(server).bind_tools([get_weather],
                                        tool_choice="get_weather")
    (call,) = chat.invoke("How is the weather in Rome?").tool_calls
    assert isinstance(call["args"]["city"], str)


@pytest.mark.parametrize("method", ["json_schema", "function_calling"])
def test_langchain_gives_objects(server, held, method):
    chat = langchain(server).with_structured_output(City, method=method)
    assert isinstance(chat.invoke("Tell me about Tokyo."), City)


@pytest.mark.parametrize("mode", [instructor.Mode.TOOLS,
                                  instructor.Mode.JSON_SCHEMA])
def test_instructor_gives_objects(held, mode):
    city = instructor.from_openai(held, mode=mode).chat.completions.create(
        model=MODEL_ID, response_model=City, max_tokens=100, temperature=0,
        max_retries=1,
        messages=[{"role": "user", "content": "Tell me about Tokyo."}])
    assert isinstance(city, City)


def test_instructor_streams_objects_that_grow(held):
    parts = list(instructor.from_openai(
        held, mode=instructor.Mode.TOOLS).chat.completions.create_partial(
            model=MODEL_ID, response_model=City, max_tokens=100, temperature=0,
            messages=[{"role": "user", "content": "Tell me about Tokyo."}]))
    assert len(parts) > 2
    assert parts[-1].continent in ("Asia", "Europe", "Africa")
