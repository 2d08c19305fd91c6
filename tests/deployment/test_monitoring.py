"""The alerting rules and configurations of Prometheus, judged by its own promtool."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from tests.conftest import ROOT
from tests.deployment.compose import FOLDER
from tests.programs import program

_CASES = Path(__file__).with_name("alert_cases.yaml")


@pytest.mark.parametrize("name", ["prometheus.yaml", "compose/prometheus.yaml"])
def test_prometheus_accepts_its_configuration(name: str, tmp_path: Path) -> None:
    """With the rules beside it, and a token where it is to be."""
    text = (FOLDER / name).read_text()
    (tmp_path / "foremind.token").write_text("a token")
    for folder in ("/etc/prometheus", "/run/token"):
        text = text.replace(folder, str(tmp_path))
    (tmp_path / "prometheus.yaml").write_text(text)
    shutil.copy(FOLDER / "alerts.yaml", tmp_path)
    output = promtool(tmp_path, "check", "config", "prometheus.yaml")
    assert "alerts.yaml" in output  # the rules were checked as well


def test_alerts_reach_a_receiver() -> None:
    """Prometheus knows where Alertmanager is, and each route of that ends at a receiver."""
    compose = yaml.safe_load((FOLDER / "compose.yaml").read_text())["services"]
    prometheus = yaml.safe_load((FOLDER / "compose" / "prometheus.yaml").read_text())
    (managers,) = prometheus["alerting"]["alertmanagers"]
    targets = [target for config in managers["static_configs"] for target in config["targets"]]
    jobs = {config["job_name"]: config["static_configs"] for config in prometheus["scrape_configs"]}
    targets += [target for configs in jobs.values() for c in configs for target in c["targets"]]
    assert {target.partition(":")[0] for target in targets} <= set(compose)
    config = yaml.safe_load((FOLDER / "compose" / "alertmanager.yaml").read_text())
    receivers = {receiver["name"] for receiver in config["receivers"]}
    routes = [config["route"], *config["route"]["routes"]]
    assert {route["receiver"] for route in routes} == receivers
    (group,) = yaml.safe_load((FOLDER / "alerts.yaml").read_text())["groups"]
    severities = {rule["labels"]["severity"] for rule in group["rules"]}
    assert set(re.findall(r'severity = "(\w+)"', str(config))) <= severities


def test_each_alert_fires_when_it_should(tmp_path: Path) -> None:
    """And one step below its threshold it does not."""
    shutil.copy(FOLDER / "alerts.yaml", tmp_path)
    shutil.copy(_CASES, tmp_path)
    promtool(tmp_path, "test", "rules", _CASES.name)
    (group,) = yaml.safe_load((FOLDER / "alerts.yaml").read_text())["groups"]
    cases = [
        case
        for test in yaml.safe_load(_CASES.read_text())["tests"]
        for case in test["alert_rule_test"]
    ]
    firing = {case["alertname"] for case in cases if case["exp_alerts"]}
    assert firing == {rule["alert"] for rule in group["rules"]}


def test_every_alert_is_explained() -> None:
    """docs/hosting.md says what to do about each, and about no other."""
    (group,) = yaml.safe_load((FOLDER / "alerts.yaml").read_text())["groups"]
    text = (ROOT / "docs" / "hosting.md").read_text()
    explained = re.findall(r"^\| `(Foremind\w+)` \|", text, re.M)
    assert sorted(explained) == sorted(rule["alert"] for rule in group["rules"])


def promtool(folder: Path, *arguments: str) -> str:
    """Run promtool, which must succeed; return what it says."""
    outcome = subprocess.run(
        [program("promtool"), *arguments], cwd=folder, capture_output=True, text=True, check=False
    )
    assert outcome.returncode == 0, outcome.stdout + outcome.stderr
    return outcome.stdout
