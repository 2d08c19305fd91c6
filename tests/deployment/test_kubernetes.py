"""deploy/kubernetes: valid by Kubernetes' own schemas, and consistent."""

import re
import subprocess
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import kubernetes_validate
import pytest
import yaml

from foremind.domain.settings.settings import Settings
from tests.conftest import ROOT
from tests.deployment.compose import FOLDER
from tests.programs import program

KUBERNETES = FOLDER / "kubernetes"
_VERSIONS = ("1.31", kubernetes_validate.latest_version())
_COMPONENT = "app.kubernetes.io/component"


@pytest.fixture(scope="module")
def objects() -> list[dict[str, Any]]:
    """What kubectl makes of the kustomization, and the Job that is created by itself."""
    built = subprocess.run(
        [program("kubectl"), "kustomize", str(KUBERNETES)],
        capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    return [*yaml.safe_load_all(built), yaml.safe_load((KUBERNETES / "migrate.yaml").read_text())]


def of_kind(objects: list[dict[str, Any]], kind: str) -> dict[str, dict[str, Any]]:
    """Return the objects of a kind, by name."""
    return {
        manifest["metadata"]["name"]: manifest for manifest in objects if manifest["kind"] == kind
    }


def pods(objects: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return the pod templates, by the component that they are labelled as."""
    templates = (
        manifest["spec"]["template"]
        for manifest in objects
        if "template" in manifest.get("spec", {})
    )
    return {template["metadata"]["labels"][_COMPONENT]: template for template in templates}


@pytest.mark.parametrize("version", _VERSIONS)
def test_every_object_fits_its_schema(objects: list[dict[str, Any]], version: str) -> None:
    """Strictly: an unknown field is an error too."""
    for manifest in objects:
        kubernetes_validate.validate(manifest, version, strict=True)
    broken = yaml.safe_load((KUBERNETES / "migrate.yaml").read_text())
    broken["spec"]["template"]["spec"]["restartPolicies"] = "Never"
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(broken, version, strict=True)


def test_every_file_is_applied() -> None:
    """By the kustomization, but for the Job, which is replaced for each version."""
    read = yaml.safe_load((KUBERNETES / "kustomization.yaml").read_text())
    generated = [file for config in read["configMapGenerator"] for file in config["files"]]
    files = [*read["resources"], *generated]
    others = ["kustomization.yaml", "migrate.yaml"]
    assert sorted([*files, *others]) == sorted(path.name for path in KUBERNETES.iterdir())


def test_everything_is_in_one_namespace(objects: list[dict[str, Any]]) -> None:
    """Its name is part of the gateways' names in haproxy.cfg."""
    assert {manifest["metadata"]["namespace"] for manifest in objects} == {"foremind"}
    assert ".gateways.foremind.svc." in (KUBERNETES / "haproxy.cfg").read_text()
    assert "gateways" in of_kind(objects, "Service")
    assert of_kind(objects, "StatefulSet")["gateway"]["spec"]["serviceName"] == "gateways"


def test_no_secret_is_in_the_repository(objects: list[dict[str, Any]]) -> None:
    """They are referred to by name, and docs/scaling.md creates each key."""
    assert not of_kind(objects, "Secret")
    required = {
        reference["key"]
        for reference in _find(objects, "secretKeyRef")
        if not reference.get("optional")
    }
    text = (ROOT / "docs" / "scaling.md").read_text()
    assert set(re.findall(r"--from-literal ([\w-]+)=", text)) == required
    assert {volume["secretName"] for volume in _find(objects, "secret")} == {"foremind-tls"}
    assert "secret generic foremind-tls --from-file site.pem=" in text


def test_selectors_find_pods(objects: list[dict[str, Any]]) -> None:
    """Services, workloads, disruption budgets and network policies mean pods that there are."""
    labels = [template["metadata"]["labels"] for template in pods(objects).values()]
    selectors = [
        *_find(objects, "matchLabels"),
        *(service["spec"]["selector"] for service in of_kind(objects, "Service").values()),
    ]
    foreign = [{"kubernetes.io/metadata.name": "monitoring"}]
    assert len(selectors) >= 15
    for selector in selectors:
        assert selector in foreign or any(selector.items() <= found.items() for found in labels)
    assert of_kind(objects, "PodDisruptionBudget").keys() == {"gateway", "proxy"}
    assert of_kind(objects, "NetworkPolicy").keys() == pods(objects).keys()


def test_an_update_lets_gateways_drain(objects: list[dict[str, Any]]) -> None:
    """They are killed no sooner than ten seconds after their grace period, one at a time."""
    gateway = pods(objects)["gateway"]["spec"]
    (container,) = gateway["containers"]
    wait_s = int(container["lifecycle"]["preStop"]["exec"]["command"][1])
    drain_s = float(of_kind(objects, "ConfigMap")["foremind"]["data"]["FOREMIND_DRAIN_S"])
    assert gateway["terminationGracePeriodSeconds"] >= wait_s + drain_s + 10
    assert of_kind(objects, "StatefulSet")["gateway"]["spec"]["updateStrategy"] == {
        "type": "RollingUpdate"
    }
    for budget in of_kind(objects, "PodDisruptionBudget").values():
        assert budget["spec"]["maxUnavailable"] == 1


def test_a_gateway_that_drains_is_alive(objects: list[dict[str, Any]]) -> None:
    """Only readiness asks /readyz: else it would be killed for draining, or for the database."""
    (container,) = pods(objects)["gateway"]["spec"]["containers"]
    asked = {name: container[name]["httpGet"]["path"] for name in container if "Probe" in name}
    assert asked["readinessProbe"] == "/readyz"
    assert asked["livenessProbe"] == "/healthz"


def test_gateways_know_every_setting_they_are_given(objects: list[dict[str, Any]]) -> None:
    """An unknown one would stop them."""
    known = {f"FOREMIND_{name.upper()}" for name in Settings.__struct_fields__}
    given = set(of_kind(objects, "ConfigMap")["foremind"]["data"])
    given |= {variable["name"] for variables in _find(objects, "env") for variable in variables}
    assert {name for name in given if name.startswith("FOREMIND_")} <= known


def test_gateways_may_fill_their_caches(objects: list[dict[str, Any]]) -> None:
    """The limit of memory is beyond what all caches may hold."""
    (container,) = pods(objects)["gateway"]["spec"]["containers"]
    limit = int(container["resources"]["limits"]["memory"].removesuffix("Gi")) * 2**30
    caches = ("index_bytes", "layers_bytes", "prepared_bytes")
    documents = 512 * 2**20
    assert limit > sum(getattr(Settings(), name) for name in caches) + documents


def test_pods_are_restricted(objects: list[dict[str, Any]]) -> None:
    """No root, no privileges, nothing to write to but scratch volumes, no API token."""
    for template in pods(objects).values():
        spec = template["spec"]
        assert spec["securityContext"]["runAsNonRoot"] is True
        assert spec["automountServiceAccountToken"] is False
        for container in spec["containers"]:
            assert container["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            }
            assert not container["image"].endswith(":latest")


def test_the_job_and_the_gateways_are_of_one_version(objects: list[dict[str, Any]]) -> None:
    """And it is that of this checkout."""
    found = {
        pods(objects)[name]["spec"]["containers"][0]["image"] for name in ("gateway", "maintenance")
    }
    text = (ROOT / "server" / "foremind" / "__init__.py").read_text()
    (version,) = re.findall(r'__version__ = "(.+)"', text)
    assert found == {f"foremind:{version}"}


def test_gateways_log_in_to_nats_with_its_password(objects: list[dict[str, Any]]) -> None:
    """Both read it from one secret, under the name that the service has."""
    variables = {
        name: {
            variable["name"]: variable.get("value") or variable["valueFrom"]
            for variable in pods(objects)[name]["spec"]["containers"][0]["env"]
        }
        for name in ("gateway", "nats")
    }
    assert variables["gateway"]["NATS_PASSWORD"] == variables["nats"]["PASSWORD"]
    assert variables["nats"]["NATS_PASSWORD"] == '"$(PASSWORD)"'
    url = urlsplit(variables["gateway"]["FOREMIND_NATS_URL"])
    assert (url.username, url.password) == ("foremind", "$(NATS_PASSWORD)")
    (port,) = of_kind(objects, "Service")[url.hostname or ""]["spec"]["ports"]
    assert port["port"] == url.port
    read = [(FOLDER / folder / "nats.conf").read_text() for folder in ("compose", "kubernetes")]
    assert read[0] == read[1]  # which test_compose has NATS check


def test_both_proxies_are_configured_alike() -> None:
    """But for the servers, and Grafana."""

    def lines(folder: str) -> set[str]:
        text = (FOLDER / folder / "haproxy.cfg").read_text()
        return {line for line in text.splitlines() if line and not line.strip().startswith("#")}

    different = lines("compose") ^ lines("kubernetes")
    assert all(re.search(r"^    (default-)?server |grafana|GRAFANA", line) for line in different)


def _find(node: Any, key: str) -> Iterator[Any]:
    """Yield every value under a key, at any depth."""
    if isinstance(node, dict):
        for name, value in node.items():
            if name == key:
                yield value
            yield from _find(value, key)
    elif isinstance(node, list):
        for value in node:
            yield from _find(value, key)
