"""deploy/compose.yaml: what docker-compose makes of it, and what it promises."""

import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from foremind.app.configuration import load_settings
from foremind.domain.errors import InvalidFile
from foremind.domain.settings.settings import Settings
from tests.conftest import ROOT
from tests.deployment.certificate import write_certificate
from tests.deployment.compose import FOLDER, Service, check, new_variables, services
from tests.programs import program


@pytest.fixture(scope="module")
def variables(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Those of a new installation."""
    certificate = tmp_path_factory.mktemp("tls") / "site.pem"
    write_certificate(certificate)
    return new_variables(certificate)


@pytest.fixture(scope="module")
def found(variables: dict[str, str]) -> dict[str, Service]:
    """The services, as docker-compose reads them."""
    return services(variables)


@pytest.mark.parametrize(
    "name",
    [
        "POSTGRES_PASSWORD",
        "GATEWAY_PASSWORD",
        "NATS_PASSWORD",
        "GRAFANA_PASSWORD",
        "FOREMIND_AUTH_SECRET",
        "TLS_PEM",
        "DOMAIN",
    ],
)
def test_nothing_starts_without_a_secret(variables: dict[str, str], name: str) -> None:
    """No password has a default: one that is missing or empty is refused, by a hint."""
    for without in ({**variables, name: ""}, {k: v for k, v in variables.items() if k != name}):
        refused = check(without)
        assert refused.returncode != 0
        hints = ("new-env.sh", "PEM file", "name the host")
        assert any(hint in refused.stderr for hint in hints)


def test_secrets_are_random(variables: dict[str, str]) -> None:
    """All differ, within an installation and between two."""
    other = new_variables(Path("/dev/null"))
    secrets = [value for name, value in [*variables.items(), *other.items()] if len(value) == 64]
    assert len(secrets) == len(set(secrets)) == 2 * 5
    ignored = (ROOT / ".gitignore").read_text().splitlines()
    assert ".env" in ignored


def test_only_the_proxy_is_published(found: dict[str, Service]) -> None:
    """The web's two ports to everyone, Grafana to this machine."""
    assert {name for name, service in found.items() if "ports" in service.options} == {"proxy"}
    assert "inside" not in found["proxy"].options["networks"]
    for name in ("postgres", "nats", "prometheus", "maintenance"):
        assert set(found[name].options["networks"]) == {"inside"}


def test_images_have_a_version(found: dict[str, Service]) -> None:
    """So that an installation does not change by itself."""
    for service in found.values():
        _, _, tag = service.options["image"].partition(":")
        assert tag not in ("", "latest")


def test_gateways_know_every_setting_they_are_given(found: dict[str, Service]) -> None:
    """An unknown one would stop them."""
    known = {f"FOREMIND_{name.upper()}" for name in Settings.__struct_fields__}
    for service in found.values():
        given = service.options.get("environment") or {}
        assert {name for name in given if name.startswith("FOREMIND_")} <= known


def test_gateways_have_time_to_drain(found: dict[str, Service]) -> None:
    """They are killed no sooner than ten seconds after their grace period."""
    for name in ("gateway-1", "gateway-2"):
        gateway = found[name]
        grace_s = int(gateway.options["stop_grace_period"].removesuffix("s"))
        assert grace_s >= float(gateway.environment["FOREMIND_DRAIN_S"]) + 10


def test_the_proxy_outwaits_the_heartbeat() -> None:
    """A silent player is pinged three times before the proxy gives up the connection."""
    text = (FOLDER / "compose" / "haproxy.cfg").read_text()
    (tunnel,) = [line.split()[-1] for line in text.splitlines() if "timeout tunnel" in line]
    assert int(tunnel.removesuffix("s")) >= 3 * 25
    with pytest.raises(InvalidFile, match="at most 25"):
        load_settings(heartbeat_s=26.0)


def test_haproxy_accepts_its_configuration(
    found: dict[str, Service], variables: dict[str, str]
) -> None:
    """Without a warning."""
    given = {**found["proxy"].environment, "TLS_PEM": variables["TLS_PEM"]}
    # Names of containers, which mean nothing here.
    given |= {name: "127.0.0.1:1" for name in given if name.startswith(("GATEWAY", "GRAFANA"))}
    outcome = subprocess.run(
        [program("haproxy"), "-c", "-f", str(FOLDER / "compose" / "haproxy.cfg")],
        env=given | {"GRAFANA_BIND": ":3000"}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (outcome.returncode, outcome.stderr) == (0, ""), outcome.stderr


@pytest.mark.parametrize("password", ["1e9", "0123abcd", "a b\\t"])
def test_nats_accepts_its_configuration(found: dict[str, Service], password: str) -> None:
    """Whatever the password looks like: NATS would read 1e9 as a number."""
    written = found["nats"].environment["NATS_PASSWORD"]
    assert written.startswith('"') and written.endswith('"')
    outcome = subprocess.run(
        [program("nats-server"), "--config", str(FOLDER / "compose" / "nats.conf"), "-t"],
        env={"NATS_PASSWORD": f'"{password}"'}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert outcome.returncode == 0, outcome.stderr


def test_mounted_files_exist(found: dict[str, Service]) -> None:
    """A name that does not exist would be mounted as an empty folder."""
    sources = [
        volume["source"] if isinstance(volume, dict) else volume.split(":")[0]
        for service in found.values()
        for volume in service.options.get("volumes") or []
    ]
    files = [source for source in sources if source.startswith("/")]
    assert len(files) >= 8
    assert [file for file in files if not Path(file).is_file()] == []


def test_grafana_finds_dashboard_and_data(found: dict[str, Service]) -> None:
    """The dashboard lies where the provider looks; the data source is the service prometheus."""
    volumes = [
        volume["target"] if isinstance(volume, dict) else volume.split(":")[1]
        for volume in found["grafana"].options["volumes"]
    ]
    provider = _read("grafana-dashboards.yaml")["providers"][0]
    assert f"{provider['options']['path']}/foremind.json" in volumes
    (source,) = _read("grafana-datasources.yaml")["datasources"]
    assert (source["type"], source["url"]) == ("prometheus", "http://prometheus:9090")
    assert "prometheus" in found


def _read(name: str) -> Any:
    return yaml.safe_load((FOLDER / "compose" / name).read_text())
