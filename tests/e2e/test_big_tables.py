"""Tables that are larger than memory stay in the model's file: a row that is read
costs a page. The files are sparse: 200 GB of tables take no room on the disk."""
import resource

import numpy as np
import pytest
import tritonclient.grpc as triton_grpc
import tritonclient.http as triton_http

import onnx_bytes
from big_tables import grow_pt2
from conftest import start
from test_ranking import DATA, infer, requests

ROWS = 1 << 30
TABLES = ("bags.0.weight", "bags.1.weight", "bags.2.weight")
FEATURES = ("ads", "tags", "words")
COLUMNS = 16
FEW = 200 << 20  # bytes; the tables have 96, 64 and 32 GiB


def bounded():
    """A table that was copied would end the server, not the machine."""
    resource.setrlimit(resource.RLIMIT_DATA, (4 << 30, 4 << 30))


def memory(server):
    """Bytes of the process in memory, those of files included."""
    with open(f"/proc/{server.process.pid}/status", encoding="ascii") as file:
        fields = dict(line.split(":", 1) for line in file)
    return int(fields["VmRSS"].split()[0]) << 10


def some_row(at):
    return np.arange(COLUMNS, dtype=np.float32) + at % 1000 + 0.5


PLACES = (0, 1, ROWS // 3, ROWS - 1)


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    root = tmp_path_factory.mktemp("tables")
    ranking = root / "ranking" / "1"
    ranking.mkdir(parents=True)
    grow_pt2(DATA / "dlrm.pt2", ranking / "model.pt2", TABLES, ROWS)
    for model, kind, dtype in (("rows", 1, np.float32),
                               ("halves", 10, np.float16)):
        folder = root / model / "1"
        folder.mkdir(parents=True)
        (folder / "model.onnx").write_bytes(
            onnx_bytes.rows_of_table(ROWS, COLUMNS, "table.bin", kind))
        with open(folder / "table.bin", "wb") as file:
            for place in PLACES:
                row = some_row(place).astype(dtype).tobytes()
                file.seek(place * len(row))
                file.write(row)
    with start("--model-repository", root, preexec_fn=bounded) as running:
        assert memory(running) < FEW
        yield running


@pytest.mark.parametrize("module", [triton_http, triton_grpc],
                         ids=["http", "grpc"])
def test_bags_of_the_first_rows_are_those_of_the_small_model(module, server):
    for inputs, wanted in requests("dlrm"):
        got, _ = infer(module, server, "ranking", inputs)
        np.testing.assert_allclose(got, wanted, rtol=0, atol=1e-5)


@pytest.mark.parametrize("model, dtype", [("rows", np.float32),
                                          ("halves", np.float16)])
def test_rows_of_external_data_are_those_of_the_file(server, model, dtype):
    wanted = np.stack([some_row(place).astype(dtype) for place in PLACES])
    got, _ = infer(triton_http, server, model, {"ids": np.array(PLACES)})
    assert got.tobytes() == wanted.tobytes()


def test_a_row_costs_a_page(server):
    """Each of these rows lies alone in its page; with the 16 pages around it,
    they would take 16 times the memory."""
    before = memory(server)
    random = np.random.default_rng(7)
    inputs = dict(requests("dlrm")[0][0])
    count = 0
    for _ in range(20):
        for name in FEATURES:
            inputs[name] = random.integers(0, ROWS, 500)
            inputs[f"{name}_offsets"] = np.array([0, 100, 300])
            count += 500
        inputs["ads_weights"] = np.ones(500, np.float32)
        got, _ = infer(triton_http, server, "ranking", inputs)
        # All of them are zeros but the first few of each table.
        assert np.ptp(got) < 1
        for model in ("rows", "halves"):
            ids = random.integers(0, ROWS, 100)
            got, _ = infer(triton_http, server, model, {"ids": ids})
            assert not got.any() or set(PLACES) & set(ids)
            count += 100
    grown = memory(server) - before
    # Pages of the rows, and what the server needs for requests.
    assert grown < count * 4096 + (20 << 20), f"{grown} bytes of {count} rows"
    assert memory(server) < FEW + count * 4096


def test_an_index_behind_the_end_is_refused(server):
    inputs = dict(requests("dlrm")[0][0])
    inputs["ads"] = np.array([0, 1, 2, ROWS, 4])
    with pytest.raises(Exception) as refused:
        infer(triton_http, server, "ranking", inputs)
    assert f"'ads' has the index {ROWS} at place 3" in str(refused.value)
