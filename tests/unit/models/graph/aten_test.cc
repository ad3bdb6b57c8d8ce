// Operators of exported programs that networks rarely have, each with numbers
// small enough to see: searches, matrices, windows, losses, complex numbers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "tests/unit/models/graph/aten_program.h"

namespace millrace::models::graph {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// ---- searches ----
TEST(Aten, ValuesAreFoundInAList) {
  EXPECT_THAT(One("aten.isin.Tensor_Tensor",
                  {TensorArg("elements", "x"), TensorArg("test_elements", "x"),
                   Truth("invert", false)},
                  {2}, {1, 2}, {2}, 12),
              ElementsAre(1, 1));
  EXPECT_THAT(One("aten.isin.Tensor_Scalar",
                  {TensorArg("elements", "x"), IntArg("test_element", "2"),
                   Truth("invert", true)},
                  {3}, {1, 2, 3}, {3}, 12),
              ElementsAre(1, 0, 1));
}

TEST(Aten, ASortedListIsSearchedFromEitherSide) {
  for (const bool right : {false, true}) {
    EXPECT_THAT(
        One("aten.searchsorted.Tensor",
            {TensorArg("sorted_sequence", "x"), Self(), Truth("right", right)},
            {3}, {1, 1, 2}, {3}, 5),
        right ? ElementsAre(2, 2, 3) : ElementsAre(0, 0, 2));
  }
}

TEST(Aten, TheLatestOfEqualExtremesIsTheOneSoFar) {
  const std::vector<float> x = {1, 3, 2, 3};
  const std::vector<std::string> along = {Self(), IntArg("dim", "0")};
  EXPECT_THAT(OneOf("aten.cummax.default", along, {4}, x, {7, 5}, 0),
              ElementsAre(1, 3, 3, 3));
  EXPECT_THAT(OneOf("aten.cummax.default", along, {4}, x, {7, 5}, 1),
              ElementsAre(0, 1, 1, 3));
  EXPECT_THAT(OneOf("aten.cummin.default", along, {4}, x, {7, 5}, 1),
              ElementsAre(0, 0, 0, 0));
  EXPECT_THAT(One("aten.logcumsumexp.default", along, {3}, {0, 0, 0}, {3}),
              Near({0, std::log(2.0f), std::log(3.0f)}));
}

TEST(Aten, NeighboursThatRepeatAreOne) {
  const std::vector<float> x = {2, 2, 1, 2};
  const std::vector<int> types = {7, 5, 5};
  const auto unique = [&](size_t place) {
    return OneOf("aten.unique_consecutive.default", {Self()}, {4}, x, types,
                 place);
  };
  EXPECT_THAT(unique(0), ElementsAre(2, 1, 2));
  EXPECT_THAT(unique(1), ElementsAre(0, 0, 1, 2));
  EXPECT_THAT(unique(2), ElementsAre(2, 1, 1));
  const auto sorted = [&](size_t place) {
    return OneOf("aten._unique2.default", {Self()}, {4}, x, types, place);
  };
  EXPECT_THAT(sorted(0), ElementsAre(1, 2));
  EXPECT_THAT(sorted(1), ElementsAre(1, 1, 0, 1));
  EXPECT_THAT(sorted(2), ElementsAre(1, 3));
}

TEST(Aten, RepeatsAndCountsAreEachOthersUndoing) {
  Program program({3});
  program.Node("aten.to.dtype", {Self(), IntArg("dtype", "5")}, "n", {"3"}, 5);
  program.Node("aten.repeat_interleave.Tensor", {TensorArg("repeats", "n")},
               "places", {"s0"}, 5);
  program.Node("aten.bincount.default",
               {Self("places"), IntArg("minlength", "4")}, "y", {"s0"}, 5);
  EXPECT_THAT(program.Run("y", {2, 0, 1}), ElementsAre(2, 0, 1, 0));
}

TEST(Aten, QuantilesLieBetweenTheirNeighbours) {
  EXPECT_THAT(One("aten.quantile.scalar",
                  {Self(), FloatArg("q", "0.25"), IntArg("dim", "1")}, {2, 3},
                  {3, 1, 2, 6, 6, 0}, {2}),
              Near({1.5f, 3}));
  EXPECT_THAT(One("aten.median.default", {Self()}, {4}, {4, 1, 3, 2}, {}),
              ElementsAre(2));
}

// ---- pools ----
TEST(Aten, PlacesOfMaximaCountThroughOnePlane) {
  // Two channels of four.
  const std::vector<float> x = {1, 5, 2, 0, 7, 1, 1, 3};
  EXPECT_THAT(OneOf("aten.max_pool2d_with_indices.default",
                    {Self(), IntsArg("kernel_size", "[1,2]")}, {1, 2, 1, 4}, x,
                    {7, 5}, 1),
              ElementsAre(1, 2, 0, 3));
  // Windows [0, 2) and [1, 3) of three.
  EXPECT_THAT(OneOf("aten.adaptive_max_pool2d.default",
                    {Self(), IntsArg("output_size", "[1,2]")}, {1, 1, 1, 3},
                    {1, 4, 9}, {7, 5}, 1),
              ElementsAre(1, 2));
}

TEST(Aten, UnpoolingPutsMaximaBack) {
  Program program({1, 1, 1, 4});
  program.Meta("m", {"1", "1", "1", "2"});
  program.Meta("i", {"1", "1", "1", "2"}, 5);
  program.RawNode("aten.max_pool2d_with_indices.default",
                  {Self(), IntsArg("kernel_size", "[1,2]")},
                  Named("m") + "," + Named("i"));
  program.Node(
      "aten.max_unpool2d.default",
      {Self("m"), TensorArg("indices", "i"), IntsArg("output_size", "[1,4]")},
      "y", {"1", "1", "1", "4"});
  EXPECT_THAT(program.Run("y", {1, 5, 2, 0}), ElementsAre(0, 5, 2, 0));
}

TEST(Aten, WhatLiesBeyondTheEdgeDoesNotSoftenAnImage) {
  // The first of two covers 0 to 3 by 3/4, 3/4 and 1/4.
  EXPECT_THAT(One("aten._upsample_bilinear2d_aa.default",
                  {Self(), IntsArg("output_size", "[1,2]"),
                   Truth("align_corners", false)},
                  {1, 1, 1, 4}, {7, 0, 0, 0}, {1, 1, 1, 2}),
              Near({3, 0}));
}

// ---- matrices ----
TEST(Aten, AMatrixIsInvertedWithPivots) {
  EXPECT_THAT(One("aten.linalg_inv.default", {TensorArg("A", "x")}, {2, 2},
                  {0, 2, 1, 0}, {2, 2}),
              Near({0, 1, 0.5f, 0}));
}

TEST(Aten, TrianglesAreSolvedWithoutWhatLiesBeyond) {
  // 9 is not read; with a diagonal of ones, nor is 7.
  EXPECT_THAT(One("aten.linalg_solve_triangular.default",
                  {Self(), TensorArg("B", "x"), Truth("upper", false),
                   Truth("unitriangular", true)},
                  {2, 2}, {7, 9, 2, 7}, {2, 2}),
              Near({7, 9, -12, -11}));
}

TEST(Aten, CholeskyGivesItsTriangle) {
  EXPECT_THAT(One("aten.linalg_cholesky.default", {Self()}, {2, 2},
                  {4, 2, 2, 5}, {2, 2}),
              Near({2, 0, 1, 2}));
}

TEST(Aten, TensorsAreMultipliedOverPairsOfAxes) {
  EXPECT_THAT(One("aten.tensordot.default",
                  {Self(), TensorArg("other", "x"), IntsArg("dims_self", "[0]"),
                   IntsArg("dims_other", "[1]")},
                  {2, 2}, {1, 2, 3, 4}, {2, 2}),
              ElementsAre(7, 15, 10, 22));
  EXPECT_THAT(One("aten.trace.default", {Self()}, {2, 2}, {1, 2, 3, 4}, {}),
              ElementsAre(5));
}

// ---- windows, losses ----
TEST(Aten, WindowsArePeriodicUnlessSaidOtherwise) {
  Program program({4});
  program.Node("aten.hann_window.default", {IntArg("window_length", "4")}, "w",
               {"4"});
  program.Node("aten.hann_window.periodic",
               {IntArg("window_length", "4"), Truth("periodic", false)}, "v",
               {"4"});
  program.Node("aten.add.Tensor", {Self("w"), TensorArg("other", "v")}, "y",
               {"4"});
  EXPECT_THAT(program.Run("y", {0, 0, 0, 0}), Near({0, 1.25f, 1.75f, 0.5f}));
}

TEST(Aten, ALossLeavesOutWhatIsIgnored) {
  Program program({2, 2});
  program.Node("aten.argmax.default", {Self(), IntArg("dim", "1")}, "t", {"2"},
               5);
  program.Node("aten.cross_entropy_loss.default",
               {Self(), TensorArg("target", "t"), IntArg("ignore_index", "1")},
               "y", {});
  EXPECT_THAT(program.Run("y", {0, -100, 0, 1}), Near({0}));
}

// ---- complex numbers ----
TEST(Aten, PairsOfPartsAreCutJoinedAndDivided) {
  Program program({2, 2});
  const auto complex = [&](const std::string& target,
                           const std::vector<std::string>& arguments,
                           const std::string& name, const std::string& size) {
    program.Node(target, arguments, name, {size}, 10);
  };
  complex("aten.view_as_complex.default", {Self()}, "z", "2");
  program.RawNode("aten._assert_tensor_metadata.default",
                  {TensorArg("a", "z"), IntArg("dtype", "10")}, "");
  complex("aten.to.dtype_layout", {Self("z"), IntArg("dtype", "10")}, "z2",
          "2");
  complex("aten.slice.Tensor",
          {Self("z2"), IntArg("dim", "0"), IntArg("start", "1"),
           IntArg("end", "2")},
          "last", "1");
  complex("aten.div.Tensor", {Self("z"), TensorArg("other", "last")}, "q", "2");
  complex("aten.mul.Tensor", {Self("q"), FloatArg("other", "2.0")}, "w", "2");
  program.Node("aten.view_as_real.default", {Self("w")}, "y", {"2", "2"});
  // (1 + 3i) / (1 + i) = 2 + i
  EXPECT_THAT(program.Run("y", {1, 3, 1, 1}), Near({4, 2, 2, 0}));
}

TEST(Aten, FramesAreAddedUpAndDividedByTheirWindows) {
  Program program({1, 2, 2, 2});
  program.Node("aten.view_as_complex.default", {Self()}, "z", {"1", "2", "2"},
               10);
  program.Node("aten.istft.default",
               {Self("z"), IntArg("n_fft", "2"), IntArg("hop_length", "1"),
                Truth("center", false)},
               "y", {"1", "3"});
  // Frames 3, 1 and 2, 2, one behind the other.
  EXPECT_THAT(program.Run("y", {4, 0, 4, 0, 2, 0, 0, 0}), Near({3, 1.5f, 2}));
}

TEST(Aten, SumsOverComplexOperandsAreFourOfTheirParts) {
  Program program({2, 2});
  program.Node("aten.view_as_complex.default", {Self()}, "z", {"2"}, 10);
  program.Node(
      "aten.einsum.default",
      {Text("equation", "i,j->ij"),
       Arg("tensors", R"({"as_tensors":[{"name":"z"},{"name":"z"}]})")},
      "w", {"2", "2"}, 10);
  program.Node("aten.imag.default", {Self("w")}, "y", {"2", "2"});
  // (1 + 2i), (3 + 4i)
  EXPECT_THAT(program.Run("y", {1, 2, 3, 4}), Near({4, 10, 10, 24}));
}

// ---- in place ----
TEST(Aten, ChangesInPlaceHaveOverloadsOfTheirOwn) {
  Program program({3});
  program.Node("aten.clone.default", {Self()}, "c", {"3"});
  program.Node("aten.floor_divide_.Tensor",
               {Self("c"), TensorArg("other", "x")}, "d", {"3"});
  program.Node("aten.pow_.Tensor",
               {Self("d"), TensorArg("other", "x"), TensorArg("exponent", "x")},
               "y", {"3"});
  EXPECT_THAT(program.Run("c", {1, 2, 3}), ElementsAre(1, 1, 1));
}

TEST(Aten, InstanceNormMayHaveStatisticsThatWereKept) {
  Program program({1, 2, 1, 1});
  const std::string strides = R"([{"as_int":1}])";
  program.Weight("mean", {"2"}, {1, 2}, strides);
  program.Weight("var", {"2"}, {4, 1}, strides);
  program.Node("aten.instance_norm.default",
               {TensorArg("input", "x"), TensorArg("running_mean", "mean"),
                TensorArg("running_var", "var"),
                Truth("use_input_stats", false), FloatArg("eps", "0.0")},
               "y", {"1", "2", "1", "1"});
  EXPECT_THAT(program.Run("y", {3, 5}), Near({1, 3}));
}

TEST(Aten, RegionsHaveChannelsOfTheirOwnOrTheGreatestPixel) {
  const auto run = [](const std::string& target, int64_t cells) {
    Program program({1, 2, 1, 2});
    program.Weight("rois", {"1", "5"}, {0, 0, 0, 2, 1},
                   R"([{"as_int":5},{"as_int":1}])");
    program.Node(
        target,
        {TensorArg("input", "x"), TensorArg("rois", "rois"),
         FloatArg("spatial_scale", "1.0"), IntArg("pooled_height", "1"),
         IntArg("pooled_width", std::to_string(cells)),
         IntArg("sampling_ratio", "1")},
        "y", {"1", "1", "1", "2"});
    return program.Run("y", {1, 2, 30, 40});
  };
  EXPECT_THAT(run("torchvision.ps_roi_align.default", 2), Near({1, 40}));
  EXPECT_THAT(run("torchvision.roi_pool.default", 1), Near({2, 40}));
  // The mean never sees the last row.
  EXPECT_THAT(run("torchvision.ps_roi_pool.default", 2), Near({0, 0}));
}

TEST(Aten, WhatIsNotKnownIsNamed) {
  Program program({2, 2});
  program.Node("aten.linalg_matrix_norm.str_ord", {Self(), Text("ord", "nuc")},
               "y", {});
  program.Output("y");
  const auto graph =
      pt2::ImportPt2Bytes(AsBytes(program.Archive()), nullptr, {});
  EXPECT_THAT(std::string(graph.status().message()),
              HasSubstr("a norm of matrices other than 'fro'"));
}

TEST(Aten, WhatCannotBeServedSaysHowToExportInstead) {
  const auto why = [](const std::string& target) {
    Program program({2, 2});
    program.Node(target, {Self()}, "y", {"2", "2"});
    program.Output("y");
    return std::string(
        pt2::ImportPt2Bytes(AsBytes(program.Archive()), nullptr, {})
            .status()
            .message());
  };
  EXPECT_THAT(why("aten._native_batch_norm_legit_functional.default"),
              HasSubstr("after eval()"));
  EXPECT_THAT(why("torch._functorch.predispatch._add_batch_dim"),
              HasSubstr("run_decompositions()"));
}

// ---- axes of what has none ----
TEST(Aten, AxesOfATensorWithoutAnyAreRefusedOrMeanNothing) {
  Program places({});
  places.Node("aten.arange.default", {IntArg("end", "1")}, "list", {"1"}, 5);
  places.Node("aten.index_fill.int_Scalar",
              {Self(), IntArg("dim", "0"), TensorArg("index", "list"),
               IntArg("value", "3")},
              "y", {});
  places.Output("y");
  const auto graph =
      pt2::ImportPt2Bytes(AsBytes(places.Archive()), nullptr, {});
  EXPECT_THAT(std::string(graph.status().message()),
              HasSubstr("an axis for them"));
  EXPECT_THAT(
      One("aten.movedim.intlist",
          {Self(), IntsArg("source", "[0]"), IntsArg("destination", "[-1]")},
          {}, {5}, {}),
      ElementsAre(5));
}

// ---- what few programs have ----
TEST(Aten, PartsTurnsAndPairsThatAreNotThereAreRefused) {
  const auto error = [](const std::string& target,
                        const std::vector<std::string>& arguments,
                        const std::vector<std::string>& sizes) {
    Pt2Program program;
    program.Input("x", sizes);
    program.Node(target, arguments, "y", sizes);
    program.Output("y");
    const auto graph =
        pt2::ImportPt2Bytes(AsBytes(program.Archive()), nullptr, {});
    return graph.ok() ? "" : std::string(graph.status().message());
  };
  EXPECT_THAT(
      error("aten.dsplit.int", {Self(), IntArg("sections", "1")}, {"2", "2"}),
      HasSubstr("an axis that is not there"));
  EXPECT_THAT(
      error("aten.hsplit.int", {Self(), IntArg("sections", "-1")}, {"2", "2"}),
      HasSubstr("an axis that is not there"));
  EXPECT_THAT(error("aten.rot90.default", {Self(), IntsArg("dims", "[0,-2]")},
                    {"2", "2"}),
              HasSubstr("from an axis to itself"));
  EXPECT_THAT(error("aten.rot90.default", {Self()}, {"2"}),
              HasSubstr("from an axis to itself"));
  EXPECT_THAT(error("aten.pdist.default", {Self()}, {"s0", "2"}),
              HasSubstr("rows that is not fixed"));
  EXPECT_THAT(error("aten.mode.default", {Self()}, {}),
              HasSubstr("of one number"));
  EXPECT_THAT(error("aten.mvlgamma.default", {Self(), IntArg("p", "0")}, {"2"}),
              HasSubstr("of this dimension"));
  EXPECT_THAT(error("aten.bernoulli.p", {Self(), FloatArg("p", "0.5")}, {"2"}),
              HasSubstr("random"));
}

}  // namespace
}  // namespace millrace::models::graph
