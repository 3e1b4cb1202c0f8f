"""llama.cpp through the low-level interface of the llama-cpp-python package: passes, and draft-model speculation.

The high-level interface copies logits about in Python, which would be timed, too.
"""

import ctypes
import time

import llama_cpp
import numpy

# Of more rows only the last one's logits are wanted, as in redline-bench.
VERIFIED = 32


class Model:
    """A model file with a context for one sequence."""

    def __init__(self, path, threads, longest):
        llama_cpp.llama_backend_init()
        self.silence = llama_cpp.llama_log_callback(lambda level, text, data: None)
        llama_cpp.llama_log_set(self.silence, ctypes.c_void_p(0))
        options = llama_cpp.llama_model_default_params()
        options.n_gpu_layers = 0
        self.model = llama_cpp.llama_model_load_from_file(str(path).encode(), options)
        if not self.model:
            raise SystemExit(f"llama.cpp can't load {path}")
        self.vocab = llama_cpp.llama_model_get_vocab(self.model)
        self.width = llama_cpp.llama_vocab_n_tokens(self.vocab)
        options = llama_cpp.llama_context_default_params()
        options.n_ctx = longest
        options.n_batch = options.n_ubatch = 512
        options.n_threads = options.n_threads_batch = threads
        self.context = llama_cpp.llama_init_from_model(self.model, options)
        if not self.context:
            raise SystemExit(f"llama.cpp has no memory for {longest} tokens of {path}")
        self.memory = llama_cpp.llama_get_memory(self.context)
        self.batch = llama_cpp.llama_batch_init(512, 0, 1)
        self.length = 0

    def keep(self, length):
        """Takes back what is behind the first `length` tokens."""
        llama_cpp.llama_memory_seq_rm(self.memory, 0, length, -1)
        self.length = min(self.length, length)

    def decode(self, tokens, wanted):
        """A pass over tokens behind those there are, with the logits of the last `wanted`."""
        count = len(tokens)
        self.batch.n_tokens = count
        for index, token in enumerate(tokens):
            self.batch.token[index] = token
            self.batch.pos[index] = self.length + index
            self.batch.n_seq_id[index] = 1
            self.batch.seq_id[index][0] = 0
            self.batch.logits[index] = index + wanted >= count
        if llama_cpp.llama_decode(self.context, self.batch) != 0:
            raise SystemExit("llama_decode failed")
        llama_cpp.llama_synchronize(self.context)
        self.length += count

    def fill(self, tokens):
        """Computes tokens in passes of 512."""
        for start in range(0, len(tokens), 512):
            part = tokens[start : start + 512]
            self.decode(part, 1)

    def best(self, row):
        """The likeliest token at row `row` of the last pass."""
        logits = llama_cpp.llama_get_logits_ith(self.context, row)
        return int(numpy.ctypeslib.as_array(logits, shape=(self.width,)).argmax())

    def pass_ms(self, context, rows):
        """Milliseconds of a pass over `rows` tokens behind `context`, which is taken back."""
        tokens = [100 + position % 50 for position in range(max(context, rows))]
        if self.length < context:
            self.fill(tokens[self.length : context])
        self.keep(context)
        started = time.perf_counter()
        self.decode(tokens[:rows], rows if rows <= VERIFIED else 1)
        elapsed = time.perf_counter() - started
        self.keep(context)
        return elapsed * 1e3

    def tokenize(self, text):
        """Tokens of a text, special ones recognised."""
        text = text.encode()
        space = (llama_cpp.llama_token * (len(text) + 16))()
        count = llama_cpp.llama_tokenize(self.vocab, text, len(text), space, len(space), False, True)
        return list(space[:count])

    def ends(self, token):
        """Whether a text ends with the token."""
        return llama_cpp.llama_vocab_is_eog(self.vocab, token)

    def template(self):
        """The chat template, as Jinja source; None if there is none."""
        text = llama_cpp.llama_model_chat_template(self.model, None)
        return text.decode() if text else None


def plain(target, prompt, count):
    """Continues a prompt greedily. Returns tokens, and seconds after the first of them."""
    target.keep(0)
    target.fill(prompt)
    out = [target.best(-1)]
    started = time.perf_counter()
    while len(out) < count and not target.ends(out[-1]):
        target.decode(out[-1:], 1)
        out.append(target.best(-1))
    return out, time.perf_counter() - started


def speculative(target, draft, prompt, count, length):
    """The same with `length` drafts a round of a draft model: llama.cpp's own loop, greedy. Also returns the share of
    the drafts that were kept."""
    target.keep(0)
    draft.keep(0)
    target.fill(prompt)
    draft.fill(prompt)
    out = [target.best(-1)]
    drafted = kept = 0
    started = time.perf_counter()
    while len(out) < count and not target.ends(out[-1]):
        text = prompt + out
        proposal = []
        draft.decode(text[draft.length :], 1)
        while True:
            proposal.append(draft.best(-1))
            if len(proposal) == length:
                break
            draft.decode(proposal[-1:], 1)
        target.decode([out[-1], *proposal], length + 1)
        accepted = 0
        for row in range(length + 1):
            out.append(target.best(row))
            if target.ends(out[-1]) or row == length or proposal[row] != out[-1]:
                break
            accepted += 1
        drafted += length
        kept += accepted
        # The last token is fed in the next round.
        target.keep(len(prompt) + len(out) - 1)
        draft.keep(min(draft.length, len(prompt) + len(out) - 1))
    return out, time.perf_counter() - started, kept / max(drafted, 1)
