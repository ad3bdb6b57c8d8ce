"""`millrace pull --sha256`: the checksum is that of what stands in the cache."""
import shutil

from model_host import COMMIT
from test_pull import GRAPH, MODEL_BYTES, SUM, host, pull, pulled


def test_a_file_that_was_damaged_is_replaced(host, tmp_path):
    host.add_repo("a/b", {"net.onnx": MODEL_BYTES}, lfs=["net.onnx"])
    for url in ("hf://a/b@main/net.onnx", host.url + "/m/net.onnx"):
        def again():
            return pulled(pull(tmp_path, "--sha256", SUM, url,
                               HF_ENDPOINT=host.url))
        path = again()
        path.write_bytes(MODEL_BYTES[:-1] + b"?")
        assert again() == path
        assert path.read_bytes() == MODEL_BYTES
        partial = path.parents[1] / "partial"
        assert list(partial.iterdir()) == []


def test_a_file_of_an_unfinished_pull_is_read(host, tmp_path):
    host.add_repo("a/b", {"net.onnx": MODEL_BYTES}, lfs=["net.onnx"])
    url = "hf://a/b@main/net.onnx"
    path = pulled(pull(tmp_path, url, HF_ENDPOINT=host.url))
    # As a pull without a checksum leaves it that is killed before its end.
    unfinished = path.parents[1] / "partial" / COMMIT
    unfinished.mkdir()
    (unfinished / path.name).write_bytes(GRAPH)
    shutil.rmtree(path.parent)
    assert pulled(pull(tmp_path, "--sha256", SUM, url,
                       HF_ENDPOINT=host.url)) == path
    assert path.read_bytes() == MODEL_BYTES
