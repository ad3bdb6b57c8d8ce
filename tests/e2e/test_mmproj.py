"""A language model and its encoder of images as two GGUF files (llama.cpp's
mmproj), behind openai-python: the tokens of transformers, as test_vision.py has
them for the folder with the same weights.
"""
import contextlib
import re
import subprocess

import pytest
from conftest import BINARY, start
from test_vision import CASES, FLOATS, FOLDER, ask, check, client_of, tokens

MODEL = FOLDER / "model.gguf"
MMPROJ = FOLDER / "mmproj.gguf"


@contextlib.contextmanager
def serve(mmproj, model=MODEL, *flags):
    with start(f"vlm={model}", "--mmproj", mmproj, *FLOATS, *flags) as running:
        yield running


@pytest.fixture(scope="module")
def vlm():
    with serve(MMPROJ) as running:
        yield running


@pytest.mark.parametrize("name", [n for n in CASES if CASES[n]["split"]])
def test_tokens_are_those_of_transformers(vlm, name):
    check(CASES[name], ask(client_of(vlm), CASES[name]))


def test_log_probabilities_are_those_of_the_folder(vlm):
    with start(f"vlm={FOLDER}", *FLOATS) as folder:
        for case in CASES.values():
            if not case["split"]:
                continue
            ours = tokens(ask(client_of(vlm), case))
            theirs = tokens(ask(client_of(folder), case))
            assert [each for each, _ in ours] == [each for each, _ in theirs]
            # The norms' epsilon is rounded to f32 in the file.
            assert [value for _, value in ours] == pytest.approx(
                [value for _, value in theirs], abs=1e-3)


def changed(tmp_path, old, new):
    """A copy with the last `old` replaced."""
    data = MMPROJ.read_bytes()
    at = data.rindex(old)
    path = tmp_path / "changed.gguf"
    path.write_bytes(data[:at] + new + data[at + len(old):])
    return path


def refused(*args):
    with pytest.raises(AssertionError) as caught:
        with serve(*args):
            pass
    return str(caught.value)


def test_what_is_not_served_is_refused(tmp_path):
    other = changed(tmp_path, b"idefics3", b"gemma-3x")
    assert ("its projector is 'gemma-3x' (clip.projector_type); 'idefics3' is "
            "served (SmolVLM and Idefics3)") in refused(other)
    torn = tmp_path / "torn.gguf"
    torn.write_bytes(MMPROJ.read_bytes()[:-1000])
    assert "torn.gguf" in refused(torn)
    assert "general.architecture is not 'clip'" in refused(MODEL)
    assert "the folder of the model has an encoder of images" in refused(
        MMPROJ, FOLDER)
    assert "no token <image>" in refused(
        MMPROJ, FOLDER.parent / "hf_llama" / "model.gguf")


def test_inspect_tells_what_it_holds(tmp_path):
    done = subprocess.run([BINARY, "inspect", MMPROJ], capture_output=True,
                          text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert re.search(r"clip\.projector_type +\"?idefics3", done.stdout)
    assert ("image encoder  2 layers, tiles of 24 x 24 pixels, 9 tokens a tile, "
            "for a language model whose rows have 48 numbers") in done.stdout
    assert f"--mmproj {MMPROJ}" in done.stdout
    other = changed(tmp_path, b"idefics3", b"gemma-3x")
    done = subprocess.run([BINARY, "inspect", other], capture_output=True,
                          text=True, timeout=60)
    assert done.returncode == 1
    assert "servable       no: its projector is 'gemma-3x'" in done.stdout
