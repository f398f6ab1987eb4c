"""What `pip install .` brings: the package and its configuration, nothing else."""

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
    subprocess.run([*command, "-w", folder, ROOT], check=True, timeout=300)
    (built,) = folder.glob("*.whl")
    return built


def test_the_wheel_holds_the_package_with_conf_inside_and_nothing_else(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.split("/")[0] for name in names} == {"servesim", f"{_stem(wheel)}.dist-info"}
    shipped = {n.removeprefix("servesim/conf/") for n in names if n.startswith("servesim/conf/")}
    conf = ROOT / "conf"
    expected = {str(p.relative_to(conf)) for p in conf.rglob("*") if p.is_file()}
    assert shipped == expected
    assert "servesim/py.typed" in names


def test_the_wheel_runs_outside_the_checkout(wheel, tmp_path):
    unpacked = tmp_path / "site"
    zipfile.ZipFile(wheel).extractall(unpacked)
    code = (
        f"import sys; sys.path.insert(0, {str(unpacked)!r});"
        "import servesim; from servesim.app.paths import conf_dir;"
        f"assert str(conf_dir()).startswith({str(unpacked)!r}), conf_dir();"
        "print(servesim.simulate('workload=fixed', 'workload.num_requests=2').summary['finished'])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    assert done.stdout.strip() == "2"


def _stem(wheel: Path) -> str:
    return "-".join(wheel.name.split("-")[:2])
