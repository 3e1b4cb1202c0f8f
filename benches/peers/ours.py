"""redline-bench as a partner that measures when it is asked: one line of JSON in, one out."""

import json
import os
import subprocess


class Served:
    """A `redline-bench kernels --serve` process."""

    def __init__(self, binary, model, threads, context, rows, extra=(), probe=1024):
        command = [binary, "kernels", "-m", model, "--threads", str(threads), "--serve"]
        command += ["--contexts", str(context), "--rows", str(rows), "--probe", str(probe), *extra]
        environment = {**os.environ, "RAYON_NUM_THREADS": str(threads)}
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        self.process = subprocess.Popen(command, text=True, env=environment, **pipes)
        self.machine = self.read()["machine"]

    def read(self):
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit(f"redline-bench ended: {self.process.wait()}")
        return json.loads(line)

    def ask(self, **question):
        self.process.stdin.write(json.dumps(question) + "\n")
        self.process.stdin.flush()
        return self.read()

    def pass_ms(self, context, rows, passes):
        """Times of some passes, and what each has to do."""
        return self.ask(context=context, m=rows, passes=passes)

    def probe(self):
        """What the machine gives now."""
        return self.ask(probe=True)

    def close(self):
        self.process.stdin.close()
        self.process.wait()
