#!/usr/bin/env python3
"""Renders the chart without a cluster, checks it, and prints the manifests.

    deploy/kubernetes/render.py [--name NAME] [--namespace NS] [--lint]
                                [--set KEY=VALUE]… [--values FILE]

KEY is a path with dots; VALUE is JSON, or text where it is none. For machines
without helm; needs the packages helm-python-sdk and PyYAML of PyPI.
"""
import argparse
import json
import os
import pathlib
import sys

CHART = pathlib.Path(__file__).resolve().parent / "millrace"


def quietly():
    """The library writes to stderr on its own: that a link was followed."""
    saved = os.dup(2)
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 2)
    os.close(null)
    return saved


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--name", default="millrace")
    parser.add_argument("--namespace", default="default")
    parser.add_argument("--lint", action="store_true")
    parser.add_argument("--set", action="append", default=[])
    parser.add_argument("--values")
    options = parser.parse_args()
    try:
        import yaml
        from helm_python import chart as helm
    except ImportError as missing:
        sys.exit(f"render: {missing.name} is not installed; "
                 "pip install helm-python-sdk PyYAML")
    values = {}
    if options.values:
        values = yaml.safe_load(pathlib.Path(options.values).read_text()) or {}
    for item in options.set:
        key, _, text = item.partition("=")
        at = values
        *parents, last = key.split(".")
        for part in parents:
            at = at.setdefault(part, {})
        try:
            at[last] = json.loads(text)
        except ValueError:
            at[last] = text
    saved = quietly()
    try:
        report = helm.lint(CHART, values, strict=True)
        with helm.Chart.load(CHART) as chart:
            rendered = chart.render(values, name=options.name,
                                    namespace=options.namespace)
    except Exception as error:
        os.dup2(saved, 2)
        sys.exit(f"render: {error}")
    os.dup2(saved, 2)
    if report["errors"]:
        sys.exit("render: " + "; ".join(report["errors"]))
    if options.lint:
        return
    documents = [document for path, text in sorted(rendered.items())
                 if path.endswith(".yaml")
                 for document in yaml.safe_load_all(text) if document]
    yaml.safe_dump_all(documents, sys.stdout, sort_keys=False)


if __name__ == "__main__":
    main()
