#!/usr/bin/env python3
"""T(M), the time of a pass over M new tokens, of redline, llama.cpp and candle, on one file in one run.

They take turns: in every turn each size is measured by each engine, one right after the other, between two readings of
the machine. Only one of them works at a time. Setup, once:

    python3 -m venv target/peers && CMAKE_ARGS=-DGGML_NATIVE=ON target/peers/bin/pip install -r benches/peers/requirements.txt
    cargo build --release -p redline -p redline-tests -p redline-bench
    target/peers/bin/python benches/peers/passes.py -m qwen2.5-coder-1.5b --threads 2 --plot passes.svg

candle stands for its quantised linear layers alone, which is the least that a model on candle takes; with --candle-f32
also for redline's architecture code over candle in f32 (`--backend candle`), which needs four bytes a weight.
"""

import argparse
import json
import statistics
import subprocess
import sys

import llama
from ours import Served


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("-m", "--model", default="smollm2-135m", help="alias or .gguf file")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--context", type=int, default=128, help="tokens before the new ones")
    parser.add_argument("--rows", default="1,2,4,8,16,32,128,512", help="new tokens of a pass")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--probe", type=int, default=1024, help="MiB read to measure the bandwidth")
    parser.add_argument("--bench", default="target/release/redline-bench")
    parser.add_argument("--candle-f32", action="store_true")
    parser.add_argument("--json", help="file for the result as JSON")
    parser.add_argument("--plot", help="file for a plot, SVG")
    return parser.parse_args()


def main():
    args = arguments()
    rows = [int(m) for m in args.rows.split(",")]
    found = subprocess.run([redline(args.bench), "pull", args.model], check=True, capture_output=True, text=True)
    path = found.stdout.strip().splitlines()[-1] if not args.model.endswith(".gguf") else args.model
    own = Served(args.bench, args.model, args.threads, args.context, max(rows), probe=args.probe)
    engines = {
        "redline": lambda m, n: own.pass_ms(args.context, m, n)["ms"],
        "llama.cpp": timer(llama.Model(path, args.threads, args.context + max(rows) + 32), args.context),
    }
    extras = [("candle, linear layers", "--candle-linears")]
    if args.candle_f32:
        extras.append(("candle, f32", "--backend=candle"))
    served = [own]
    for name, flag in extras:
        other = Served(args.bench, args.model, args.threads, args.context, max(rows), [flag], probe=2)
        served.append(other)
        engines[name] = lambda m, n, other=other: other.pass_ms(args.context, m, n)["ms"]
    result = measure(args, rows, own, engines)
    for process in served:
        process.close()
    show(result)
    if args.json:
        with open(args.json, "w", encoding="utf-8") as file:
            json.dump(result, file)
    if args.plot:
        plot(args, result)


def redline(bench):
    return bench.removesuffix("-bench")


def timer(model, context):
    return lambda m, n: [model.pass_ms(context, m) for _ in range(n)]


def measure(args, rows, own, engines):
    """Samples of every size and engine, turn by turn."""
    samples = {name: {m: [] for m in rows} for name in [*engines, "roofline"]}
    names = list(engines)
    for turn in range(args.turns):
        print(f"turn {turn + 1} of {args.turns}", file=sys.stderr)
        for m in rows if turn % 2 == 0 else rows[::-1]:
            before = own.probe()
            passes = 3 if m <= 32 else 1
            for name in names[turn % len(names) :] + names[: turn % len(names)]:
                times = engines[name](m, passes + (m <= 32))
                samples[name][m].append(statistics.median(times[m <= 32 :]))
            samples["roofline"][m].append(roofline(own, args.context, m, before, own.probe()))
    out = []
    for m in rows:
        row = {"m": m, "context": args.context}
        for name, by_rows in samples.items():
            row[name] = statistics.median(by_rows[m])
        for name in [*names[1:], "roofline"]:
            pairs = zip(samples[name][m], samples["redline"][m])
            row[f"{name} / redline"] = statistics.median(other / ours for other, ours in pairs)
        out.append(row)
    return {"model": args.model, "threads": args.threads, "machine": own.machine, "rows": out}


def roofline(own, context, m, before, after):
    """The least time of a pass, in milliseconds, by the better of two readings."""
    work = own.pass_ms(context, m, 0)
    bandwidth = max(before["read_gb_s"], after["read_gb_s"])
    peak = max(before["int8_gmacs"], after["int8_gmacs"])
    return max(work["bytes"] / bandwidth, work["macs"] / peak) / 1e6


def show(result):
    names = [name for name in result["rows"][0] if name not in ("m", "context")]
    print(f"{result['model']}, {result['threads']} threads, context {result['rows'][0]['context']}: ms of a pass")
    print("   M" + "".join(f"  {name:>10}" for name in names))
    for row in result["rows"]:
        print(f"{row['m']:>4}" + "".join(f"  {row[name]:>{max(10, len(name))}.2f}" for name in names))


def plot(args, result):
    engines = [name for name in result["rows"][0] if name not in ("m", "context") and "/" not in name]
    series = [{"name": name, "points": [[row["m"], row[name]] for row in result["rows"]]} for name in engines]
    picture = {"title": f"{result['model']}: time of a pass over M new tokens", "series": series}
    with open(args.plot, "w", encoding="utf-8") as file:
        subprocess.run([args.bench, "plot"], input=json.dumps(picture), text=True, stdout=file, check=True)


if __name__ == "__main__":
    main()
