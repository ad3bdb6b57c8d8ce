#!/usr/bin/env python3
"""Writes tests/data/sequences/running_sum.onnx, a graph with a state and every
control input of a sequence:

    OUTPUT = STATE_IN + INPUT        STATE_OUT = OUTPUT       INT32 [batch, 1]
    CONTROLS = [START, END, READY]   INT32 [batch, 3]
    ID = CORRID                      UINT64 [batch, 1]

    python3 tests/data/make_sequences.py       # needs the package onnx
"""
import pathlib

import onnx
from onnx import TensorProto, helper

OUT = pathlib.Path(__file__).parent / "sequences"


def port(name, kind=TensorProto.INT32, size=1):
    return helper.make_tensor_value_info(name, kind, ["batch", size])


def main():
    graph = helper.make_graph(
        [helper.make_node("Add", ["STATE_IN", "INPUT"], ["OUTPUT"], "sum"),
         helper.make_node("Identity", ["OUTPUT"], ["STATE_OUT"], "state"),
         helper.make_node("Concat", ["START", "END", "READY"], ["CONTROLS"],
                          "controls", axis=1),
         helper.make_node("Identity", ["CORRID"], ["ID"], "id")],
        "running_sum",
        [port("INPUT"), port("STATE_IN"), port("START"), port("END"),
         port("READY"), port("CORRID", TensorProto.UINT64)],
        [port("OUTPUT"), port("STATE_OUT"), port("CONTROLS", size=3),
         port("ID", TensorProto.UINT64)])
    model = helper.make_model(graph, producer_name="make_sequences",
                              opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 8
    onnx.checker.check_model(model)
    OUT.mkdir(exist_ok=True)
    (OUT / "running_sum.onnx").write_bytes(model.SerializeToString())


if __name__ == "__main__":
    main()
