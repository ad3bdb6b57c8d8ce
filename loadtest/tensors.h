// Tensors for KServe v2 and bytes for TorchServe. Names, datatypes and sizes
// come from the model's metadata; values from .npy files, or at random.
//
//   ASSIGN_OR_RETURN(auto tensors, MakeTensors(options, specs, seed));
//   int64_t json_bytes;
//   std::string body = KserveBody(tensors, /*binary=*/true, &json_bytes);
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "config/base/status.h"
#include "loadtest/options.h"
#include "loadtest/requests.h"

namespace millrace::loadtest {

struct TensorSpec {
  std::string name;
  std::string datatype;        // "FP32", "INT64", "BYTES", ...
  std::vector<int64_t> shape;  // -1: the request decides
};

// Values little-endian and row major; an element of BYTES is its length as
// uint32 and its bytes.
struct Tensor {
  TensorSpec spec;  // all sizes known
  std::string bytes;
};

// The inputs as in GET /v2/models/{model}.
StatusOr<std::vector<TensorSpec>> ParseMetadata(std::string_view json);

// Asks the server for them.
StatusOr<std::vector<TensorSpec>> InputsOf(const Options& options);

// The tensors of the index-th request, one for each spec: from the files of its
// name in turn, else at random. Sizes: --shape, else a file's, else the
// metadata's with the batch size for a variable first one. An element of BYTES
// is a whole file, unless that is a .npy file. INVALID_ARGUMENT where the
// options ask for exact rows and no input has so many.
StatusOr<std::vector<Tensor>> MakeTensors(const Options& options,
                                          const std::vector<TensorSpec>& specs,
                                          int64_t index);

// The inputs that requests hold: the declared ones; but where --input names
// another one and files that are no .npy, that one as BYTES and those with
// values of their own. So a server is asked that makes a model's inputs of
// pictures.
std::vector<TensorSpec> SentInputs(const Options& options,
                                   const std::vector<TensorSpec>& specs);

// How many different requests there are: as many as files, and some more
// where values are made at random.
int64_t NumTensorRequests(const Options& options,
                          const std::vector<TensorSpec>& specs);

// The array of a .npy file (format 1.0 to 3.0, C order), the name left empty.
StatusOr<Tensor> ParseNpy(std::string_view file);

// The body of an infer request. json_bytes: length of its JSON part, for the
// header Inference-Header-Content-Length.
StatusOr<std::string> KserveBody(const std::vector<Tensor>& tensors,
                                 bool binary, int64_t* json_bytes);

// Messages of ModelInfer calls.
StatusOr<std::unique_ptr<Requests>> MakeGrpcRequests(const Options& options);

// kserve, kserve-grpc and torchserve.
StatusOr<std::unique_ptr<Requests>> MakeTensorRequests(const Options& options);

}  // namespace millrace::loadtest
