"""Every command of the README runs, or says what it needs.

A fenced `bash` block is run line by line. `<!-- needs: X -->` on the line before it says that it
is not run here: `set-up` (the two make targets), `data` (public measurements beside the checkout;
run where they are there), `download`. `<!-- takes: minutes -->` moves a block to `make test-long`.
"""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCK = re.compile(r"((?:<!-- [^\n]* -->\n)*)```(bash|python)\n(.*?)```", re.DOTALL)
KNOWN_NEEDS = {"set-up", "data", "download"}
DATA = Path(os.environ.get("SERVESIM_DATA") or ROOT.parent / "shared" / "data")


def blocks(language):
    found = []
    for tags, kind, text in BLOCK.findall(README):
        if kind == language:
            needs = re.findall(r"<!-- needs: (\S+) -->", tags)
            found.append((text, needs[0] if needs else "", "takes: minutes" in tags))
    return found


def commands(*, minutes):
    for text, needs, takes_minutes in blocks("bash"):
        if takes_minutes != minutes or needs in ("set-up", "download"):
            continue
        for line in text.replace("\\\n", " ").splitlines():
            command = line.partition("  #")[0].strip()
            if command:
                yield pytest.param(command, needs, id=command[:60])


def run(command, needs, cwd):
    if needs == "data" and not DATA.is_dir():
        pytest.skip(f"needs public measurements at {DATA}; set SERVESIM_DATA")
    for folder in ("conf", "experiments", "servesim", "validation"):
        (cwd / folder).symlink_to(ROOT / folder)
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "PYTHONPATH": str(ROOT), "SERVESIM_DATA": str(DATA)}
    done = subprocess.run(
        command, shell=True, cwd=cwd, env=environment, capture_output=True, text=True, timeout=900
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize(("command", "needs"), list(commands(minutes=False)))
def test_command(command, needs, tmp_path):
    run(command, needs, tmp_path)


@pytest.mark.long
@pytest.mark.parametrize(("command", "needs"), list(commands(minutes=True)))
def test_command_that_takes_minutes(command, needs, tmp_path):
    run(command, needs, tmp_path)


@pytest.mark.parametrize("text", [b[0] for b in blocks("python")], ids=lambda t: t[:40])
def test_python(text, tmp_path):
    run(f"{shlex.quote(sys.executable)} -c {shlex.quote(text)}", "", tmp_path)


def test_the_policy_of_the_readme_works_as_the_readme_says(tmp_path):
    # what a reader would do: the class into the package, the YAML beside the others
    (code,) = re.findall(r"```py\n(.*?)```", README, re.DOTALL)
    (yaml,) = re.findall(r"```yaml\n(# .*?)```", README, re.DOTALL)
    for folder in ("conf", "servesim"):
        shutil.copytree(ROOT / folder, tmp_path / folder)
    policy = tmp_path / "servesim" / "policies" / "order" / "shortest_within.py"
    policy.write_text(code)
    (tmp_path / "conf" / "policies" / "order" / "shortest_within.yaml").write_text(yaml)
    done = subprocess.run(
        [
            *(sys.executable, "-m", "servesim", "policies/order=shortest_within"),
            *("policies.order.class_tokens=1024", "workload.num_requests=20", "output.format=json"),
        ],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["order"] == "shortest_within"


def test_the_two_set_up_commands_are_the_makefiles():
    (text,) = [b[0] for b in blocks("bash") if b[1] == "set-up"]
    targets = re.findall(r"^make (\S+)", text, re.MULTILINE)
    assert targets == ["run", "test"]
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for target in targets:
        assert f"\n{target}:" in makefile
    assert "make test" in (ROOT / ".ci" / "run").read_text(encoding="utf-8")


def test_tags_are_known():
    assert {needs for _, needs, _ in blocks("bash")} <= KNOWN_NEEDS | {""}


def test_links_and_pictures_exist():
    for target in re.findall(r"\]\(([^)#:]+)\)", README):
        assert (ROOT / target).exists(), target
