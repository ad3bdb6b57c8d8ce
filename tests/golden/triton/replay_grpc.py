"""Sends the calls of corpus_grpc to a server and keeps of each response what
should be the same everywhere."""
import grpc
from google.protobuf import json_format
from tritonclient.grpc import service_pb2_grpc

from replay import once_it_left, shape


def send(stub, call):
    try:
        response = getattr(stub, call.method)(call.request, timeout=30)
    except grpc.RpcError as error:
        return {"status": error.code().name}
    return {"status": "OK", "response": shape(json_format.MessageToDict(
        response, preserving_proto_field_name=True,
        always_print_fields_with_no_presence=True))}


def replay(address, calls):
    with grpc.insecure_channel(address) as channel:
        stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
        return {call.name: once_it_left(call.name, lambda: send(stub, call))
                for call in calls}
