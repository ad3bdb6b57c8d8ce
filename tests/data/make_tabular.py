#!/usr/bin/env python3
"""Tabular models of scikit-learn, XGBoost and LightGBM as ONNX, with what ONNX
Runtime answers: tests/data/tabular/NAME.onnx and NAME.npz (in_*, out_*).

  pip install numpy pandas scikit-learn skl2onnx onnxmltools onnxruntime xgboost lightgbm
  tests/data/make_tabular.py [FOLDER]

`ensemble_*` are random tree ensembles of every mode, aggregate and post
transform, written node by node."""
import pathlib
import sys
import warnings

import numpy as np
import onnxruntime
import pandas
from onnx import TensorProto, helper
from skl2onnx import convert_sklearn
from skl2onnx.common.data_types import (FloatTensorType, Int64TensorType,
                                        StringTensorType)
from sklearn.compose import ColumnTransformer
from sklearn.datasets import load_breast_cancer, load_diabetes, load_iris
from sklearn.ensemble import (GradientBoostingClassifier,
                              HistGradientBoostingRegressor,
                              RandomForestClassifier)
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import (Binarizer, LabelEncoder, Normalizer,
                                   OneHotEncoder, OrdinalEncoder,
                                   StandardScaler)
from sklearn.svm import SVC, SVR

warnings.filterwarnings("ignore")
OPSETS = {"": 20, "ai.onnx.ml": 3}
FOLDER = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else
                      pathlib.Path(__file__).parent / "tabular")


def plain(array):
    """numpy's own strings; maps of a ZipMap as a table."""
    if isinstance(array, list):
        array = np.array([list(row.values()) for row in array], np.float32)
    if array.dtype == object:
        array = np.array([str(x).encode() for x in array.ravel()]).reshape(
            array.shape)
    return array


def save(name, model, feeds):
    data = model if isinstance(model, bytes) else model.SerializeToString()
    session = onnxruntime.InferenceSession(data)
    names = [output.name for output in session.get_outputs()]
    answers = session.run(None, feeds)
    (FOLDER / f"{name}.onnx").write_bytes(data)
    arrays = {f"in_{i.name}": plain(feeds[i.name])
              for i in session.get_inputs()}
    arrays |= {f"out_{n}": plain(a) for n, a in zip(names, answers)}
    np.savez(FOLDER / f"{name}.npz", **arrays)


def sklearn(name, model, x, y=None, zipmap=False, kind=FloatTensorType):
    model.fit(x, y)
    options = None
    if hasattr(model, "predict_proba") and not zipmap:
        options = {id(model): {"zipmap": False}}
    exported = convert_sklearn(
        model, initial_types=[("X", kind([None, x.shape[1]]))],
        options=options, target_opset=OPSETS)
    rows = x[::max(1, len(x) // 40)]
    save(name, exported,
         {"X": rows.astype(np.float32) if kind is FloatTensorType else rows})


def mixed():
    """Columns of strings and numbers, as a DataFrame has them."""
    rng = np.random.default_rng(0)
    frame = pandas.DataFrame({
        "colour": rng.choice(["rot", "grün", "blau"], 60),
        "size": rng.choice(["s", "m", "xl"], 60),
        "a": rng.normal(size=60), "b": rng.normal(size=60)})
    target = np.where(frame["a"] > 0, "ja", "nein")
    for name, encoder in (("onehot", OneHotEncoder(handle_unknown="ignore")),
                          ("ordinal", OrdinalEncoder())):
        model = Pipeline([
            ("columns", ColumnTransformer([
                ("words", encoder, ["colour", "size"]),
                ("numbers", make_pipeline(SimpleImputer(), StandardScaler()),
                 ["a", "b"])])),
            ("trees", RandomForestClassifier(8, random_state=0))])
        model.fit(frame, target)
        exported = convert_sklearn(
            model, options={id(model): {"zipmap": False}},
            target_opset=OPSETS,
            initial_types=[(c, StringTensorType([None, 1]))
                           for c in ("colour", "size")] +
                          [(c, FloatTensorType([None, 1])) for c in "ab"])
        save(f"mixed_{name}", exported, {
            c: frame[[c]].to_numpy() if c in ("colour", "size")
            else frame[[c]].to_numpy(np.float32)
            for c in ("colour", "size", "a", "b")})


def boosted():
    import lightgbm
    import onnxmltools
    import xgboost
    from onnxmltools.convert.common.data_types import FloatTensorType as Float
    for name, (x, y), makers in (
            ("cancer", load_breast_cancer(return_X_y=True),
             (xgboost.XGBClassifier, lightgbm.LGBMClassifier)),
            ("iris", load_iris(return_X_y=True),
             (xgboost.XGBClassifier, lightgbm.LGBMClassifier)),
            ("diabetes", load_diabetes(return_X_y=True),
             (xgboost.XGBRegressor, lightgbm.LGBMRegressor))):
        x = x.copy()
        x[::7, 0] = np.nan
        types = [("X", Float([None, x.shape[1]]))]
        feeds = {"X": x[::12].astype(np.float32)}
        save(f"xgboost_{name}", onnxmltools.convert_xgboost(
            makers[0](n_estimators=12, max_depth=3).fit(x, y),
            initial_types=types, target_opset=15), feeds)
        save(f"lightgbm_{name}", onnxmltools.convert_lightgbm(
            makers[1](n_estimators=12, num_leaves=8, verbose=-1).fit(x, y),
            initial_types=types, target_opset=15, zipmap=False), feeds)


def ensemble(name, seed, classes, post, modes, aggregate="SUM", base=False,
             targets=None):
    """Random complete trees of depth 3, NaN and equal values among the rows.
    `targets`: of leaves, one each; None: all of them."""
    rng = np.random.default_rng(seed)
    columns = {k: [] for k in ("treeids", "nodeids", "featureids", "modes",
                               "values", "truenodeids", "falsenodeids",
                               "missing_value_tracks_true")}
    leaves = {k: [] for k in ("treeids", "nodeids", "ids", "weights")}
    for tree in range(9):
        for node in range(15):
            leaf = node >= 7
            row = (tree, node, int(rng.integers(0, 5)),
                   "LEAF" if leaf else str(rng.choice(modes)),
                   float(rng.integers(-2, 3)), 0 if leaf else 2 * node + 1,
                   0 if leaf else 2 * node + 2, int(rng.integers(0, 2)))
            for column, value in zip(columns.values(), row):
                column.append(value)
            if not leaf:
                continue
            chosen = ([int(rng.choice(targets))] if targets
                      else range(max(classes, 1)))
            for target in chosen:
                weight = float(np.float32(rng.normal()))
                for column, value in zip(leaves.values(),
                                         (tree, node, target, weight)):
                    column.append(value)
    attributes = {f"nodes_{k}": v for k, v in columns.items()}
    kind = "Classifier" if aggregate is None else "Regressor"
    prefix = "class" if aggregate is None else "target"
    attributes |= {f"{prefix}_{k}": v for k, v in leaves.items()}
    if base:
        attributes["base_values"] = [0.25 * k - 0.5 for k in range(classes)]
    if aggregate is None:
        attributes["classlabels_int64s"] = [7 * k for k in range(classes)]
        outputs = [("label", TensorProto.INT64, ["n"]),
                   ("scores", TensorProto.FLOAT, ["n", "k"])]
    else:
        attributes |= {"n_targets": classes, "aggregate_function": aggregate}
        outputs = [("y", TensorProto.FLOAT, ["n", classes])]
    node = helper.make_node(f"TreeEnsemble{kind}", ["X"],
                            [o[0] for o in outputs], domain="ai.onnx.ml",
                            post_transform=post, **attributes)
    graph = helper.make_graph(
        [node], name,
        [helper.make_tensor_value_info("X", TensorProto.FLOAT, ["n", 5])],
        [helper.make_tensor_value_info(*o) for o in outputs])
    model = helper.make_model(graph, ir_version=8, opset_imports=[
        helper.make_opsetid("", 15), helper.make_opsetid("ai.onnx.ml", 3)])
    x = rng.integers(-3, 4, (40, 5)).astype(np.float32)
    x[::5] += 0.5
    x[::7, 2] = np.nan
    save(name, model, {"X": x})


def main():
    FOLDER.mkdir(exist_ok=True)
    iris = load_iris(return_X_y=True)
    cancer = load_breast_cancer(return_X_y=True)
    diabetes = load_diabetes(return_X_y=True)
    words = np.array(["setosa", "versicolor", "virginica"])[iris[1]]
    sklearn("forest_words", RandomForestClassifier(8, random_state=0),
            iris[0], words)
    sklearn("forest_zipmap", RandomForestClassifier(8, random_state=0), *iris,
            zipmap=True)
    sklearn("boosting", GradientBoostingClassifier(n_estimators=8,
                                                   random_state=0), *cancer)
    sklearn("histograms", HistGradientBoostingRegressor(max_iter=8),
            *diabetes)
    sklearn("logistic", make_pipeline(StandardScaler(), LogisticRegression()),
            *cancer)
    sklearn("logistic3", LogisticRegression(max_iter=500), *iris)
    sklearn("linear", LinearRegression(), *diabetes)
    sklearn("svc", SVC(), *iris)
    sklearn("svc2", make_pipeline(StandardScaler(), SVC(kernel="poly")),
            cancer[0][::6], cancer[1][::6])
    sklearn("svr", SVR(kernel="sigmoid"), diabetes[0][::4], diabetes[1][::4])
    holes = iris[0].copy()
    holes[::3, 1] = np.nan
    sklearn("columns", make_pipeline(
        SimpleImputer(), Normalizer("l2"), Binarizer(threshold=0.3),
        LogisticRegression()), holes, iris[1])
    sklearn("onehot_ints", OneHotEncoder(),
            np.random.default_rng(0).integers(0, 4, (40, 2)),
            kind=Int64TensorType)
    encoder = LabelEncoder().fit(["a", "ä", "z"])
    save("labels", convert_sklearn(
        encoder, initial_types=[("X", StringTensorType([None]))],
        target_opset=OPSETS), {"X": np.array(["z", "a", "ä", "z"], object)})
    mixed()
    boosted()
    every = ["BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT",
             "BRANCH_EQ", "BRANCH_NEQ"]
    inequalities = every[:4]
    for i, post in enumerate(("NONE", "LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO")):
        ensemble(f"ensemble_classes_{post.lower()}", i, 3, post, every, None)
        ensemble(f"ensemble_two_{post.lower()}", 10 + i, 2, post,
                 inequalities, None, targets=[0])
    ensemble("ensemble_base", 20, 3, "SOFTMAX", inequalities, None, base=True)
    for i, aggregate in enumerate(("SUM", "AVERAGE", "MIN", "MAX")):
        ensemble(f"ensemble_{aggregate.lower()}", 30 + i, 2, "NONE",
                 inequalities if i < 2 else every, aggregate, base=i % 2 == 0)
    ensemble("ensemble_sparse", 40, 4, "NONE", ["BRANCH_LEQ"], "SUM",
             targets=[0, 1, 2, 3])


main()
