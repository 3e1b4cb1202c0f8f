#!/usr/bin/env python3
"""Tokens per second of a target with a draft model: redline and llama.cpp, on the same files and prompts in one run.

For every category of a prompts file, llama.cpp continues its prompts greedily without drafts and with each fixed number
of them, then `redline-bench speculation` does; and again, the other way round. Set up as for passes.py, then:

    target/peers/bin/python benches/peers/speculation.py -m qwen2.5-coder-1.5b -d qwen2.5-coder-0.5b \\
        --data tests/data/humaneval.jsonl --limit 3
"""

import argparse
import json
import subprocess
import sys
import tempfile

import jinja2
import llama


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("-m", "--model", default="qwen2.5-coder-1.5b", help="alias or .gguf file")
    parser.add_argument("-d", "--draft", default="qwen2.5-coder-0.5b", help="alias or .gguf file")
    parser.add_argument("--data", required=True, help="prompts, one JSON object a line")
    parser.add_argument("--limit", type=int, default=3, help="prompts of each category")
    parser.add_argument("-n", "--max-tokens", type=int, default=96)
    parser.add_argument("--lengths", default="1,2,4", help="drafts a round of llama.cpp")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--bench", default="target/release/redline-bench")
    parser.add_argument("--json", help="file for the result as JSON")
    return parser.parse_args()


def path_of(bench, model):
    if model.endswith(".gguf"):
        return model
    command = [bench.removesuffix("-bench"), "pull", model]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()[-1]


def main():
    args = arguments()
    lengths = [int(length) for length in args.lengths.split(",")]
    longest = 4096
    target = llama.Model(path_of(args.bench, args.model), args.threads, longest)
    draft = llama.Model(path_of(args.bench, args.draft), args.threads, longest)
    rows = []
    for category, lines in by_category(args.data, args.limit).items():
        tallies = {}
        for repeat in range(args.repeats):
            parts = [
                lambda: peer(tallies, target, draft, lines, lengths, args.max_tokens),
                lambda: ours(tallies, args, lines),
            ]
            for part in parts if repeat % 2 == 0 else parts[::-1]:
                part()
        row = {"category": category, **{name: tokens / seconds for name, (tokens, seconds) in tallies.items() if seconds}}
        best = max(row[f"llama.cpp K={length}"] for length in lengths)
        row["redline auto / llama.cpp's best with drafts"] = row["redline auto"] / best
        row["read_gb_s"] = tallies["read_gb_s"][0] / args.repeats
        rows.append(row)
        print(json.dumps(row), file=sys.stderr)
    result = {"model": args.model, "draft": args.draft, "threads": args.threads, "categories": rows}
    if args.json:
        with open(args.json, "w", encoding="utf-8") as file:
            json.dump(result, file)
    show(result)


def by_category(path, limit):
    categories = {}
    with open(path, encoding="utf-8") as file:
        for line in file:
            lines = categories.setdefault(json.loads(line)["category"], [])
            if len(lines) < limit:
                lines.append(line)
    return categories


def prompt_of(target, line):
    """As redline-bench has it: the first turn through the chat template; code as it stands."""
    line = json.loads(line)
    text, source = line["turns"][0], target.template()
    if line["category"] != "code" and source:
        environment = jinja2.Environment(trim_blocks=True, lstrip_blocks=True)
        messages = [{"role": "user", "content": text}]
        text = environment.from_string(source).render(messages=messages, add_generation_prompt=True)
    return target.tokenize(text)


def add(tallies, name, tokens, seconds):
    before = tallies.get(name, (0, 0))
    tallies[name] = (before[0] + tokens, before[1] + seconds)


def peer(tallies, target, draft, lines, lengths, count):
    for line in lines:
        prompt = prompt_of(target, line)
        tokens, seconds = llama.plain(target, prompt, count)
        add(tallies, "llama.cpp off", len(tokens) - 1, seconds)
        for length in lengths:
            drafted, seconds, _ = llama.speculative(target, draft, prompt, count, length)
            add(tallies, f"llama.cpp K={length}", len(drafted) - 1, seconds)


def ours(tallies, args, lines):
    with tempfile.NamedTemporaryFile("w", suffix=".jsonl", encoding="utf-8") as file:
        file.writelines(lines)
        file.flush()
        command = [args.bench, "speculation", "-m", args.model, "-d", args.draft, "--data", file.name, "--json"]
        command += ["--limit", "0", "-n", str(args.max_tokens), "--threads", str(args.threads), "--repeats", "1"]
        out = subprocess.run([*command, "--fixed", "4"], check=True, stdout=subprocess.PIPE, text=True).stdout
    row = json.loads(out)["categories"][0]
    add(tallies, "redline off", row["off_tok_s"], 1)
    add(tallies, "redline auto", row["auto_tok_s"], 1)
    add(tallies, "read_gb_s", row["machine"]["read_gb_s"], 0)


def show(result):
    names = [name for name in result["categories"][0] if name != "category"]
    print("category".ljust(20) + "".join(f"  {name}" for name in names))
    for row in result["categories"]:
        print(row["category"].ljust(20) + "".join(f"  {row[name]:>{len(name)}.2f}" for name in names))


if __name__ == "__main__":
    main()
