# SPDX-License-Identifier: MIT
"""What the end-to-end tests share: TAP, a directory with keys and sealed models, a daemon, its client.

A test file lists functions and ends with run_tests(). Each runs once for every provider in
$SITS_TEST_PROVIDERS (default: user) against programs in $BUILD. Nothing is waited for by the clock: wait_for() polls for an
event, and its limit only ends a test that fails.
"""
import contextlib
import fcntl
import json
import os
import pathlib
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from tiny_gguf import tiny_gguf  # noqa: E402

BUILD = pathlib.Path(os.environ.get("BUILD", "build/gcc")).absolute()
SITS, SITSD = str(BUILD / "sits"), str(BUILD / "sitsd")
SANITIZED = b"__asan_init" in pathlib.Path(SITSD).read_bytes()
PROVIDERS = os.environ.get("SITS_TEST_PROVIDERS", "user").replace(",", " ").split()
REAL_MODEL = os.environ.get("SITS_MODEL_GGUF", "")
PATIENCE = 300.0  # seconds until an event that must come counts as missing
ENDLESS = ("--raw", "--ignore-eos", "-n", "250000")  # takes place.endless() a quarter of an hour
SEED = int(os.environ.get("SITS_TEST_SEED", "0")) or random.randrange(1, 1 << 32)
os.environ.pop("SITS_RUN_DIR", None)
os.environ.pop("NOTIFY_SOCKET", None)
# Builds with sanitizers: what they keep aside to find use after free is not growth of the daemon.
os.environ["ASAN_OPTIONS"] = os.environ.get("ASAN_OPTIONS", "") + ":quarantine_size_mb=2:thread_local_quarantine_size_kb=64"
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


class Skip(Exception):
    pass


def wait_for(what, condition, patience=PATIENCE):
    """Poll until condition() is true, and give its value."""
    end = time.monotonic() + patience
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > end:
            raise AssertionError(f"waited {patience:.0f} s for: {what}")
        time.sleep(0.01)


class Place:
    """A directory with a key, sealed models and a configuration, for one provider."""

    def __init__(self, provider):
        self.provider = provider
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix="sits-e2e-"))
        self.key = f"file:{self.dir}/key"
        self.sits("key", "new", self.key)
        self.daemons, self.nr_daemons = [], 0
        self.shared_daemon = None

    def shared(self):
        """A daemon on the real model with the default configuration, for tests that leave it as it is."""
        if not self.shared_daemon or self.shared_daemon.proc.poll() is not None:
            self.shared_daemon = Daemon(self, self.real(), name="shared")
            self.daemons.remove(self.shared_daemon)
        return self.shared_daemon

    def path(self, name):
        return str(self.dir / name)

    def sits(self, *args, check=True, **kw):
        p = subprocess.run([SITS, *args], capture_output=True, text=True, **kw)
        if check and p.returncode:
            raise AssertionError(f"sits {' '.join(args)}: status {p.returncode}: {p.stderr}")
        return p

    def seal(self, gguf, name, model_id, version=1, key=None):
        out = self.path(name)
        self.sits("seal", "--force", "--key", key or self.key, "--model-id", model_id, "--model-version", str(version), gguf,
                  out)
        return out

    def tiny(self, name="tiny.sits", version=1, model_id="tiny", key=None):
        gguf = self.path("tiny.gguf")
        if not os.path.exists(gguf):
            tiny_gguf(gguf)
        return self.seal(gguf, name, model_id, version, key)

    def endless(self):
        """A tiny model of a long context, for requests that are to be met running, however long that takes."""
        out = self.path("endless.sits")
        if not os.path.exists(out):
            tiny_gguf(self.path("endless.gguf"), context=1 << 18)
            self.seal(self.path("endless.gguf"), "endless.sits", "endless")
            os.unlink(self.path("endless.gguf"))
        return out

    def real(self):
        """The real model, sealed; once for each place."""
        if not REAL_MODEL:
            raise Skip("SITS_MODEL_GGUF is not set: no real model")
        out = self.path("real.sits")
        return out if os.path.exists(out) else self.seal(REAL_MODEL, "real.sits", "real")

    def close(self):
        for d in self.daemons + [self.shared_daemon]:
            if d:
                d.kill()
        shutil.rmtree(self.dir, ignore_errors=True)


class Daemon:
    """sitsd on a sealed model. config: more YAML as nested dicts."""

    def __init__(self, place, sealed, name=None, wait=True, env=None, args=(), **config):
        place.nr_daemons += 1
        name = f"{name or 'd'}{place.nr_daemons}"  # a directory of its own each time
        self.place, self.name, self.proc = place, name, None
        self.run_dir = place.path(f"{name}-run")
        self.log_path = place.path(f"{name}.log")
        self.config_path = place.path(f"{name}.yaml")
        self.config = {"provider": place.provider, "run_dir": self.run_dir, "state_dir": place.path(f"{name}-state"),
                       "model": {"path": sealed, "key": place.key}, "memory": {"require_locked": "false"}}
        self.env = env or {}
        self.args = list(args)
        self.write_config(**config)
        place.daemons.append(self)
        if wait:
            self.start()

    def write_config(self, **config):
        """Change sections of the configuration and write the file."""
        for k, v in config.items():
            if isinstance(v, dict):
                self.config.setdefault(k, {}).update(v)
            else:
                self.config[k] = v
        lines = []
        for k, v in self.config.items():
            if isinstance(v, dict):
                lines += [f"{k}:"] + [f'  {a}: "{b}"' for a, b in v.items()]
            else:
                lines.append(f'{k}: "{v}"')
        pathlib.Path(self.config_path).write_text("\n".join(lines) + "\n")

    def spawn(self):
        """Start it, and give the read end of its readiness pipe."""
        r, w = os.pipe()
        with open(self.log_path, "ab") as log:
            self.proc = subprocess.Popen([SITSD, "--config", self.config_path, "--ready-fd", str(w), *self.args], stdout=log,
                                         stderr=log, stdin=subprocess.DEVNULL, pass_fds=[w], env={**os.environ, **self.env})
        os.close(w)
        return r

    def start(self):
        r = self.spawn()
        with os.fdopen(r, "rb") as f:
            line = f.readline()  # an end of file where it dies
        if line != b"READY\n":
            raise AssertionError(f"sitsd did not start: {self.log()}")
        return self

    def start_fails(self):
        """Start it where it must fail. Return its exit status and what it logged in this run."""
        before = len(self.log())
        r = self.spawn()
        os.close(r)
        return self.proc.wait(PATIENCE), self.log()[before:]

    def log(self):
        with contextlib.suppress(FileNotFoundError):
            return pathlib.Path(self.log_path).read_text(errors="replace")
        return ""

    @property
    def pid(self):
        return self.proc.pid

    def client(self, *args):
        return [SITS, "run", "--run-dir", self.run_dir, "--provider", self.place.provider, *args]

    def run(self, *args, **kw):
        return subprocess.run(self.client(*args), capture_output=True, text=kw.pop("text", True), **kw)

    def run_json(self, *args, **kw):
        p = self.run("--json", "--quiet", *args, **kw)
        if p.returncode:
            raise AssertionError(f"status {p.returncode}: {p.stderr}")
        return json.loads(p.stdout)

    def popen(self, *args, **kw):
        kw.setdefault("stdout", subprocess.PIPE)
        kw.setdefault("stderr", subprocess.PIPE)
        return subprocess.Popen(self.client(*args), **kw)

    def popen_running(self, *args, **kw):
        """A client whose request runs, and has an end; where it had ended before that was seen, another one."""
        while True:
            p = self.popen(*args, **kw)
            wait_for("a running request, or its end", lambda: self.info()["engine"]["running"] == 1 or p.poll() is not None)
            if p.poll() is None:
                return p
            p.communicate()

    def info(self):
        """The daemon's own object, or None where none answers."""
        p = subprocess.run([SITS, "info", "--json", "--run-dir", self.run_dir, "--provider", self.place.provider],
                           capture_output=True, text=True)
        if p.returncode:
            raise AssertionError(f"sits info: {p.stderr}")
        return json.loads(p.stdout)["daemon"]

    def wait_active(self, n):
        """Wait until n requests are in it, and, for 0, all that they held is free."""
        def there():
            i = self.info()
            if i["counters"]["active"] != n:
                return None
            if not n and (i["engine"]["running"] or i["engine"]["waiting"] or i["engine"]["kv_pages_used"]):
                return None
            return i
        return wait_for(f"{n} active requests", there)

    def wait_running(self, n):
        return wait_for(f"{n} running requests", lambda: (lambda i: i["engine"]["running"] == n and i)(self.info()))

    def signal(self, sig):
        self.proc.send_signal(sig)

    def freeze(self):
        """Stop all its threads: each stops when it next looks, not when the signal is sent."""
        self.signal(signal.SIGSTOP)
        tasks = pathlib.Path(f"/proc/{self.proc.pid}/task")
        wait_for("the daemon's threads stop",
                 lambda: all((t / "stat").read_text().rpartition(") ")[2][0] == "T" for t in tasks.iterdir()))

    def wait(self):
        return self.proc.wait(PATIENCE)

    def stop(self):
        """End it as systemd would, and check that it ends well."""
        self.signal(signal.SIGTERM)
        status = self.wait()
        if status:
            raise AssertionError(f"sitsd ended with {status}: {self.log()}")

    def kill(self):
        if self.proc and self.proc.poll() is None:
            self.proc.kill()
            self.proc.wait()

    # What the process holds, from the outside. Needs root: the daemon is not dumpable.

    def fds(self):
        return len(os.listdir(f"/proc/{self.pid}/fd"))

    # Not from status: what that has may be off by some pages for each processor.

    def rss_kib(self, where=""):
        """Of all mappings, or of those of files whose names begin so."""
        kib, counted = 0, False
        for line in pathlib.Path(f"/proc/{self.pid}/smaps").read_text().splitlines():
            f = line.split()
            if not f[0].endswith(":"):
                counted = " ".join(f[5:]).startswith(where)
            elif f[0] == "Rss:" and counted:
                kib += int(f[1])
        return kib

    def memfds(self):
        """(device, inode) of every memfd it holds."""
        out = set()
        for fd in os.listdir(f"/proc/{self.pid}/fd"):
            with contextlib.suppress(FileNotFoundError):
                p = f"/proc/{self.pid}/fd/{fd}"
                if os.readlink(p).startswith("/memfd:"):
                    st = os.stat(p)
                    out.add((st.st_dev, st.st_ino))
        return out


def memfd_holders(memfds):
    """Processes that hold or map one of these."""
    holders = set()
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            for fd in os.listdir(f"/proc/{pid}/fd"):
                with contextlib.suppress(OSError):
                    st = os.stat(f"/proc/{pid}/fd/{fd}")
                    if (st.st_dev, st.st_ino) in memfds:
                        holders.add(int(pid))
            for line in pathlib.Path(f"/proc/{pid}/maps").read_text().splitlines():
                f = line.split()
                major, minor = (int(x, 16) for x in f[3].split(":"))
                if f[4] != "0" and (os.makedev(major, minor), int(f[4])) in memfds:
                    holders.add(int(pid))
    return holders


def need_root():
    if os.geteuid():
        raise Skip("needs root to look into the daemon, which is not dumpable")


def meminfo_kib(field):
    for line in pathlib.Path("/proc/meminfo").read_text().splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1])
    return 0


def read_some(pipe, n=1):
    """Read at least n bytes from a process's pipe."""
    out = b""
    while len(out) < n:
        piece = os.read(pipe.fileno(), 65536)
        if not piece:
            raise AssertionError(f"end of output after {out!r}")
        out += piece
    return out


def pipe_capacity(pipe, n):
    fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, n)


def run_tests(*tests):
    nr, failed = 0, 0
    print(f"# seed {SEED}", flush=True)
    for provider in PROVIDERS:
        place = Place(provider)
        try:
            for test in tests:
                nr += 1
                name = f"{test.__name__.replace('_', ' ')} ({provider})"
                try:
                    random.seed(SEED)
                    test(place)
                    print(f"ok {nr} - {name}", flush=True)
                except Skip as s:
                    print(f"ok {nr} - {name} # SKIP {s}", flush=True)
                except Exception:
                    failed += 1
                    for line in traceback.format_exc().splitlines():
                        print(f"# {line}")
                    for d in place.daemons[-1:] or filter(None, [place.shared_daemon]):
                        for line in d.log().splitlines()[-20:]:
                            print(f"# sitsd: {line}")
                    print(f"not ok {nr} - {name}", flush=True)
                for d in place.daemons:
                    d.kill()
                place.daemons.clear()
        finally:
            place.close()
    print(f"1..{nr}")
    sys.exit(1 if failed else 0)
