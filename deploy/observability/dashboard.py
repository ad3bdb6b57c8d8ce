#!/usr/bin/env python3
"""Makes the Grafana dashboard from the table of panels below.

    deploy/observability/dashboard.py > deploy/observability/dashboard.json

A panel is a title, a unit of Grafana, a width (24 is a whole row), what its
reader does with it, and its queries with their legends. $job, $instance and
$model are chosen at the top of the dashboard.
"""
import json
import sys

ALL = 'job=~"$job", instance=~"$instance"'
MODEL = ALL + ', model=~"$model"'


def quantile(share, metric, labels=MODEL, by="model"):
    return (f"histogram_quantile({share}, sum by (le, {by}) "
            f"(rate({metric}_bucket{{{labels}}}[$__rate_interval])))")


def rate(metric, by, labels=MODEL, more=""):
    return f"sum by ({by}) (rate({metric}{{{labels}{more}}}[$__rate_interval]))"


ROWS = [
    ("Now", [
        ("Ready servers", "short", 4, "Servers that answer Prometheus.",
         [(f"sum(up{{{ALL}}})", "servers")]),
        ("Requests running", "short", 4, "Requests that are being computed.",
         [(f"sum(millrace_requests_running{{{MODEL}}})", "running")]),
        ("Requests waiting", "short", 4,
         "Above zero for long: add servers or cores.",
         [(f"sum(millrace_requests_waiting{{{MODEL}}})", "waiting")]),
        ("Output tokens", "short", 4, "Tokens generated a second.",
         [(f"sum(rate(millrace_generation_tokens_total{{{MODEL}}}"
           "[$__rate_interval]))", "tokens/s")]),
        ("KV pages in use", "percentunit", 4,
         "Near 100 %: sequences wait for pages or are preempted.",
         [(f'sum(millrace_kv_pages{{{MODEL}, state="used"}}) / '
           f"sum(millrace_kv_pages{{{MODEL}}})", "used")]),
        ("Versions", "short", 4, "More than one: a roll-out is under way.",
         [(f"count by (version) (millrace_build_info{{{ALL}}})",
           "{{version}}")]),
    ]),
    ("Requests", [
        ("Requests by outcome", "reqps", 8,
         "'rejected' asks for capacity, 'error' for a look at the log.",
         [(rate("millrace_requests_total", "outcome", ALL), "{{outcome}}")]),
        ("Requests by route", "reqps", 8, "What clients ask for.",
         [(rate("millrace_requests_total", "route", ALL) + " > 0",
           "{{route}}")]),
        ("Refusals by reason", "reqps", 8,
         "queue_full: more capacity or a longer queue; deadline: clients give "
         "too little time.",
         [(rate("millrace_admission_refusals_total", "model, reason"),
           "{{model}} {{reason}}")]),
    ]),
    ("Latency", [
        ("Time to the first token", "s", 8,
         "Grows with the queue and with the length of prompts.",
         [(quantile(q, "millrace_time_to_first_token_seconds"),
           f"{{{{model}}}} p{int(q * 100)}") for q in (0.5, 0.9, 0.99)]),
        ("Time between tokens", "s", 8,
         "Grows with the batch; target_itl bounds what prompts add.",
         [(quantile(q, "millrace_inter_token_latency_seconds"),
           f"{{{{model}}}} p{int(q * 100)}") for q in (0.5, 0.9, 0.99)]),
        ("Time in the queue", "s", 8, "Waiting before the computation begins.",
         [(quantile(q, "millrace_queue_time_seconds"),
           f"{{{{model}}}} p{int(q * 100)}") for q in (0.5, 0.99)]),
        ("Duration of requests", "s", 8, "From the first byte to the last.",
         [(quantile(q, "millrace_request_duration_seconds", ALL, "route"),
           f"{{{{route}}}} p{int(q * 100)}") for q in (0.5, 0.99)]),
        ("Batch size", "short", 8,
         "Mean of sequences in a step, or of requests computed together.",
         [(f"{rate('millrace_batch_size_sum', 'model')} / "
           f"{rate('millrace_batch_size_count', 'model')}", "{{model}}")]),
        ("Running and waiting", "short", 8, "By model and server.",
         [(f"millrace_requests_running{{{MODEL}}}",
           "{{model}} {{instance}} running"),
          (f"millrace_requests_waiting{{{MODEL}}}",
           "{{model}} {{instance}} waiting")]),
    ]),
    ("Tokens and memory", [
        ("Tokens", "short", 8, "Tokens a second.",
         [(rate("millrace_prompt_tokens_total", "model"), "{{model}} prompt"),
          (rate("millrace_generation_tokens_total", "model"),
           "{{model}} output")]),
        ("KV pages", "short", 8,
         "Pages that are used, kept for prompts that begin alike, and free.",
         [(f"sum by (model, state) (millrace_kv_pages{{{MODEL}}})",
           "{{model}} {{state}}")]),
        ("Prefix cache", "percentunit", 8,
         "Share of prompt tokens found computed.",
         [(f"{rate('millrace_prefix_cache_hits_total', 'model')} / "
           f"({rate('millrace_prefix_cache_queries_total', 'model')} > 0)",
           "{{model}}")]),
        ("Preemptions", "short", 8,
         "If they grow steadily: more kv_cache_memory_bytes or fewer "
         "max_num_seqs.",
         [(rate("millrace_preemptions_total", "model"), "{{model}}")]),
        ("Draft tokens accepted", "percentunit", 8,
         "Share of draft tokens that saved a step.",
         [("sum by (model) (rate(millrace_spec_decode_num_accepted_tokens_total"
           f"{{{MODEL}}}[$__rate_interval])) / (sum by (model) "
           f"(rate(millrace_spec_decode_num_draft_tokens_total{{{MODEL}}}"
           "[$__rate_interval])) > 0)", "{{model}}")]),
        ("HTTP connections", "short", 8, "Open, and bytes of bodies held.",
         [(f"sum by (instance) (millrace_http_connections{{{ALL}}})",
           "{{instance}} open"),
          (f"sum by (instance) (rate(millrace_http_connections_refused_total"
           f"{{{ALL}}}[$__rate_interval]))", "{{instance}} refused/s")]),
    ]),
    ("Compute", [
        ("Share of the peak", "percentunit", 12,
         "Memory near 100 %: decoding is at the machine's limit. Arithmetic "
         "near 100 %: prompts and batches are.",
         [(f"millrace_model_bandwidth_utilization{{{MODEL}}}",
           "{{model}} {{instance}} memory"),
          (f"millrace_model_flops_utilization{{{MODEL}}}",
           "{{model}} {{instance}} arithmetic")]),
        ("Where steps spend their time", "percentunit", 12,
         "Seconds of each phase a second.",
         [(rate("millrace_step_phase_seconds_total", "phase"), "{{phase}}")]),
    ]),
]


def panel(number, title, unit, help_text, queries, x, y, width, stat):
    return {
        "id": number, "title": title, "description": help_text,
        "type": "stat" if stat else "timeseries",
        "datasource": {"type": "prometheus", "uid": "${datasource}"},
        "gridPos": {"h": 4 if stat else 8, "w": width, "x": x, "y": y},
        "fieldConfig": {"defaults": {"unit": unit, "min": 0}, "overrides": []},
        "options": ({"reduceOptions": {"calcs": ["lastNotNull"]}} if stat else
                    {"legend": {"displayMode": "table", "placement": "bottom",
                                "calcs": ["lastNotNull", "max"]},
                     "tooltip": {"mode": "multi"}}),
        "targets": [{"refId": chr(ord("A") + i), "expr": expr,
                     "legendFormat": legend}
                    for i, (expr, legend) in enumerate(queries)]}


def variable(name, query, label):
    return {"name": name, "label": label, "type": "query", "refresh": 2,
            "query": query, "includeAll": True, "multi": True,
            "allValue": ".*", "current": {"text": "All", "value": "$__all"},
            "datasource": {"type": "prometheus", "uid": "${datasource}"}}


def dashboard():
    panels, number, y = [], 0, 0
    for row, members in ROWS:
        number += 1
        panels.append({"id": number, "type": "row", "title": row,
                       "collapsed": False, "panels": [],
                       "gridPos": {"h": 1, "w": 24, "x": 0, "y": y}})
        y += 1
        x = 0
        stat = row == "Now"
        height = 4 if stat else 8
        for title, unit, width, help_text, queries in members:
            if x + width > 24:
                x, y = 0, y + height
            number += 1
            panels.append(panel(number, title, unit, help_text, queries, x, y,
                                width, stat))
            x += width
        y += height
    return {
        "uid": "millrace", "title": "Millrace", "tags": ["millrace"],
        "schemaVersion": 38, "version": 1, "editable": True,
        "refresh": "15s", "time": {"from": "now-1h", "to": "now"},
        "timezone": "", "annotations": {"list": []}, "links": [],
        "templating": {"list": [
            {"name": "datasource", "label": "Data source",
             "type": "datasource", "query": "prometheus"},
            variable("job", "label_values(millrace_build_info, job)", "Job"),
            variable("instance", 'label_values(millrace_build_info'
                     '{job=~"$job"}, instance)', "Server"),
            variable("model", 'label_values(millrace_requests_running'
                     '{job=~"$job"}, model)', "Model")]},
        "panels": panels}


if __name__ == "__main__":
    json.dump(dashboard(), sys.stdout, indent=1)
    print()
