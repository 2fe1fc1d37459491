"""What scripts rely on: --json is one object, exit codes say what happened, --help is quick."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result

from ingot.api import compile as compile_model
from ingot.cli.main import COMMANDS, main
from ingot.support.errors import IngotError
from tests.refusal import Fact, check, is_told
from tests.small import answers, small_model

ROOT = Path(__file__).parents[2]
X = np.arange(8, dtype=np.float32).reshape(2, 4)


def ingot(*args: object) -> Result:
    return CliRunner().invoke(main, [*map(str, args)])


def said(*args: object, exit_code: int = 0) -> dict:
    done = ingot(*args, "--json")
    assert done.exit_code == exit_code, done.output
    return json.loads(done.stdout)


def refusal(*args: object, exit_code: int) -> IngotError:
    found = said(*args, exit_code=exit_code)
    assert found["exit_code"] == exit_code
    return IngotError(**found["error"])


@pytest.fixture(scope="module")
def small(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("small") / "small.onnx"
    path.write_bytes(small_model().SerializeToString())
    np.save(path.with_name("x.npy"), X)
    y, z = answers(X)
    np.savez(path.with_name("good.npz"), y=y, z=z)
    np.savez(path.with_name("bad.npz"), y=y, z=z + 1)
    np.savez(path.with_name("other.npz"), q=z)
    compile_model(path).save(path.with_suffix(".plan"))
    return path


# --- json -----------------------------------------------------------------------------------------


def test_compile_as_json(small: Path):
    made = said("compile", small, "--shape", "x=2x4")
    assert made["inputs"] == [{"name": "x", "dtype": "f32", "shape": [2, 4]}]
    assert made["runs_here"] and made["memory_bytes"]["weights"] > 0 and made["seconds"] > 0
    assert {"import", "codegen"} <= made["stages_s"].keys()
    assert made["kernels"][0]["kernel"] == "matmul_add_relu"
    assert said("compile", small)["inputs"][0]["shape"] == ["batch", 4]
    assert "return %y" in said("compile", small, "--stop-after", "import")["text"]


def test_show_and_profile_as_json(small: Path):
    assert said("show", small, "--stage", "import")["text"].startswith(
        "# ingot graph 2\ngraph small("
    )
    found = said("profile", small, "--runs", 2, "--size", "batch=16")
    assert found["runs"] == 2 and found["run_us"] > 0
    assert "matmul_add_relu" in found["launches"][0]["kernel"]
    assert len(said("profile", small, "--runs", 1, "--top", 1)["launches"]) == 1


def test_profile_writes_a_trace(small: Path, tmp_path: Path):
    path = tmp_path / "trace.json"
    found = said("profile", small, "--runs", 2, "--size", "batch=16", "--trace", path)
    assert found["trace"] == str(path)
    events = json.loads(path.read_text())["traceEvents"]
    assert sum(e.get("cat") == "call" for e in events) == 2
    assert any(e["args"].get("kernel") == found["launches"][0]["kernel"] for e in events)
    nowhere = refusal("profile", small, "--trace", tmp_path / "no" / "t.json", exit_code=2)
    check(nowhere, "bad-option", where="--trace")


def test_run_as_json(small: Path):
    outputs = said("run", small, "--input", f"x={small.with_name('x.npy')}")["outputs"]
    assert [o["name"] for o in outputs] == ["y", "z"] and outputs[0]["shape"] == [2, 3]
    assert outputs[1]["max"] == pytest.approx(answers(X)[1].max())


def test_what_json_cannot_say_is_null(small: Path, tmp_path: Path):
    np.save(tmp_path / "x.npy", np.full((1, 4), np.inf, np.float32))
    assert said("run", small, "--input", f"x={tmp_path}/x.npy")["outputs"][0]["max"] is None


def test_an_error_as_json(small: Path):
    error = refusal("run", small, "--shape", "bath=1", exit_code=2)
    check(error, "bad-option", "'bath'", hint="batch")
    missing = refusal("run", small, "--input", "x=nowhere.npy", exit_code=2)
    check(missing, "bad-option", os.strerror(errno.ENOENT), where="x=nowhere.npy", hint=False)
    torn = refusal("run", small, "--input", f"x={small}", exit_code=1)
    check(torn, "bad-input", where=small.name, hint=False)


@pytest.mark.parametrize("words, expected", [
    (["compile", "nowhere.onnx"], "'nowhere.onnx'"),
    (["doctor", "--nope"], "--nope"),
    (["nope"], "'nope'"),
    (["cache", "nope"], "'nope'"),
])  # fmt: skip
def test_an_error_of_the_command_line_as_json(words: list[str], expected: str):
    check(refusal(*words, exit_code=2), "bad-option", where=expected, hint="--help")
    assert "Usage: " in ingot(*words).stderr


@pytest.mark.parametrize("command", ["compile", "run"])
def test_a_file_that_cannot_be_written_is_told_before_any_work(small: Path, command: str):
    no_model = small.with_suffix(".pt")
    no_model.write_bytes(b"PK\x03\x04")
    nowhere = small.parent / "nowhere" / "file"
    error = refusal(command, no_model, "--save", nowhere, exit_code=2)
    check(error, "bad-option", where=("--save", f"'{nowhere.parent}'"), hint="--help")
    error = refusal(command, no_model, exit_code=1)
    check(error, "bad-model", where=str(no_model), hint="torch.onnx.export")


INTERRUPT = """
import os, signal, sys
from ingot.support import lazy
real = lazy.load
def load(name):
    if name == {when!r}: os.kill(os.getpid(), signal.SIGINT)
    return real(name)
lazy.load = load
sys.argv = ["ingot", *{words!r}]
from ingot.cli.main import main
main()
"""


@pytest.mark.parametrize("when", ["cli.compile", "pipeline"])  # is loaded, is at work
def test_ctrl_c_is_one_line(small: Path, when: str):
    words = ["compile", str(small), "--json"]
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPT.format(when=when, words=words)],
        capture_output=True, text=True, cwd=ROOT, timeout=60,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (130, "interrupted\n")
    found = json.loads(done.stdout)
    assert found["error"]["code"] == "interrupted" and found["exit_code"] == 130


# --- run ------------------------------------------------------------------------------------------


def test_expected_answers(small: Path):
    words = ["run", small, "--input", f"x={small.with_name('x.npy')}", "--expect"]
    good = said(*words, small.with_name("good.npz"))
    assert good["agrees"] and good["distance"] < 1e-6
    bad = said(*words, small.with_name("bad.npz"), exit_code=3)
    assert not bad["agrees"] and bad["worst_output"] == "z"
    assert said(*words, small.with_name("bad.npz"), "--tolerance", 2)["agrees"]
    assert not said(*words, small.with_name("other.npz"), exit_code=3)["agrees"]
    assert "NOT as expected: 'z'" in ingot(*words, small.with_name("bad.npz")).stdout


@pytest.mark.parametrize("expected, facts", [
    ({"q": X}, ["'q'", "y, z"]),
    ({"y": X}, ["'y'", "[2, 3]", "[2, 4]"]),
])  # fmt: skip
def test_expected_answers_that_are_of_another_model(
    small: Path, tmp_path: Path, expected: dict[str, np.ndarray], facts: list[str]
):
    np.savez(tmp_path / "expected.npz", **expected)  # type: ignore[arg-type]
    done = ingot("run", small, "--shape", "batch=2", "--expect", tmp_path / "expected.npz")
    verdict = done.stdout.splitlines()[-1]
    assert done.exit_code == 3 and verdict.startswith("NOT as expected"), done.stdout
    assert all(is_told(fact, verdict) for fact in facts), verdict


def test_random_inputs_have_a_range(small: Path):
    def highest(span: str) -> float:
        words = ["--range", f"x={span}", "--shape", "batch=64"]
        return said("run", small, *words)["outputs"][0]["max"]

    assert highest("0:1000") > 100 > highest("0:1")
    assert ingot("run", small, "--range", "x=1:0").exit_code == 2
    assert ingot("run", small, "--range", "q=0:1").exit_code == 2


@pytest.mark.parametrize("words, expected", [
    (["--shape", "x=2x5"], ["'x'", "2x5", "x: f32[batch, 4]", 4, 5]),
    (["--shape", "x=2x4x1"], ["'x'", "2x4x1", "x: f32[batch, 4]", 2]),
    (["--shape", "q=2x4"], ["'q'", "try:", "x: f32[batch, 4]"]),
    (["--shape", "x=2xy"], ["'2xy'", "INPUT=1x128"]),
])  # fmt: skip
def test_shapes_that_do_not_fit(small: Path, words: list[str], expected: list[Fact]):
    done = ingot("run", small, *words)
    assert done.exit_code == 2
    assert all(is_told(fact, done.stderr) for fact in expected), done.stderr


@pytest.mark.parametrize("batch", [10**13, 10**18])  # numpy refuses the one, cannot count the other
def test_an_input_that_no_memory_holds(small: Path, batch: int):
    error = refusal("run", small.with_suffix(".plan"), "--shape", f"batch={batch}", exit_code=1)
    check(error, "run-failed", 16 * batch)


def test_a_plan_has_its_sizes_too(small: Path):
    for model in (small, small.with_suffix(".plan")):
        error = refusal("run", model, "--shape", "nope=3", exit_code=2)
        check(error, "bad-option", where="'nope'", hint="batch")


# --- doctor ---------------------------------------------------------------------------------------


def test_doctor_says_what_there_is():
    found = {f["name"]: f for f in said("doctor")["findings"]}
    assert found["compile and run"]["state"] == "ok" and "LLVM" in found["LLVM"]["value"]
    assert found["onnxruntime"]["state"] == "ok"
    assert 1 <= int(found["threads per call"]["value"]) <= int(found["allowed"]["value"])
    assert "Models compile and run here." in ingot("doctor").stdout


def test_doctor_says_why_not(tmp_path: Path):
    kept = {k: v for k, v in os.environ.items() if not k.startswith("INGOT_")}
    open_to_all = tmp_path / "open"
    open_to_all.mkdir()
    open_to_all.chmod(0o777)
    done = subprocess.run(
        [sys.executable, "-m", "ingot.cli", "doctor"],
        capture_output=True, text=True, cwd=ROOT, timeout=120,
        env={**kept, "INGOT_CACHE_DIR": str(open_to_all), "INGOT_THREADS": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    rows = [row for row in done.stdout.splitlines() if str(open_to_all) in row]
    assert any(is_told("mode 777", row) and is_told("chmod go-w", row) for row in rows), done.stdout
    threads = next(row for row in done.stdout.splitlines() if "threads per call" in row)
    assert is_told("INGOT_THREADS", threads)


def test_doctor_says_that_there_is_no_c_compiler(tmp_path: Path):
    hidden = "import sys; sys.modules['ziglang'] = None\nfrom ingot.cli.main import main\n"
    done = subprocess.run(
        [sys.executable, "-c", hidden + "main(['doctor', '--json'])"],
        capture_output=True, text=True, cwd=ROOT, timeout=120,
        env={**os.environ, "PATH": str(tmp_path)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    rows = {
        f["name"]: f for f in json.loads(done.stdout)["findings"] if f["section"] == "back ends"
    }
    assert rows["cpu"]["state"] == "ok" and not rows["cpu"]["why"]
    assert rows["c"]["state"] == "none"
    assert all(is_told(fact, rows["c"]["why"]) for fact in ("gcc", "INGOT_CC"))


# --- help and completion --------------------------------------------------------------------------


def python(code: str, **environ: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True, text=True, cwd=ROOT, env={**os.environ, **environ}, timeout=60,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("words", [[], *([name] for name in COMMANDS)])
def test_help_loads_no_compiler(words: list[str]):
    code = (
        "import sys\nfrom ingot.cli.main import main\n"
        f"main({[*words, '--help']!r}, standalone_mode=False)\n"
        "print('LOADED', sorted({'onnx', 'llvmlite', 'rich', 'ingot.pipeline', 'ingot.ops'}"
        " & set(sys.modules)))"
    )
    out = python(code)
    assert "Usage:" in out and "LOADED []" in out


def test_every_command_is_listed_with_its_help():
    listed = ingot("--help").stdout
    for name, help_text in COMMANDS.items():
        assert name in listed and help_text.split(":")[0][:30] in listed
    parts = [["cache", part] for part in ("why", "size", "clear")]
    for words in ([name] for name in COMMANDS if name != "cache"):
        assert "--json" in ingot(*words, "--help").stdout
    for words in parts:
        assert "--json" in ingot(*words, "--help").stdout


@pytest.mark.parametrize("words, expected", [
    ("ingot pro", "profile"),
    ("ingot show m.onnx --stage sched", "schedule"),
    ("ingot show m.onnx --as as", "asm"),
])  # fmt: skip
def test_shell_completion(words: str, expected: str):
    last = len(words.split()) - 1
    code = "from ingot.cli.main import main; main(prog_name='ingot')"
    ask = f"import sys\ntry:\n {code}\nexcept SystemExit: pass"
    out = python(ask, _INGOT_COMPLETE="bash_complete", COMP_WORDS=words, COMP_CWORD=str(last))
    assert f"plain,{expected}" in out.split()
