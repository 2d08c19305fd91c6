"""`foremind keys new` and `foremind token`."""

import json
from pathlib import Path

import pytest

from foremind.auth.signing_keys import read_keys
from foremind.cli.main import app
from foremind.cli.tokens import new
from foremind.domain.errors import InvalidFile, UnsafeBinding


def test_a_new_public_key_is_added_to_the_file(tmp_path: Path) -> None:
    public = tmp_path / "public.json"
    for kid in ("first", "second"):
        new(private=tmp_path / f"{kid}.json", public=public, kid=kid)
    assert list(read_keys(public)) == ["first", "second"]
    assert all("d" not in key for key in json.loads(public.read_text("utf-8"))["keys"])
    assert (tmp_path / "second.json").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    ("private", "listed", "complaint"),
    [
        ("new.json", {"x": 1}, "public.json: expected a JWK Set"),
        ("new.json", {"keys": [{"kid": "a"}]}, r"public.json: keys\[0\]"),
        ("known.json", {"keys": []}, "known.json: expected a file that can be made"),
        ("nowhere/new.json", {"keys": []}, "nowhere/new.json: expected a file that can be made"),
    ],
)
def test_unusable_files_are_named_and_left_unchanged(
    tmp_path: Path, private: str, listed: object, complaint: str
) -> None:
    public, known = tmp_path / "public.json", tmp_path / "known.json"
    public.write_text(json.dumps(listed))
    known.write_text("a key")
    with pytest.raises(InvalidFile, match=complaint):
        new(private=tmp_path / private, public=public, kid="new")
    assert json.loads(public.read_text("utf-8")) == listed
    assert known.read_text("utf-8") == "a key"


def test_no_half_of_a_pair_is_left_behind(tmp_path: Path) -> None:
    """Where one of the two files cannot be made, neither is."""
    for private, public in (("new.json", "nowhere/public.json"), ("nowhere/new.json", "p.json")):
        with pytest.raises(InvalidFile, match="nowhere"):
            new(private=tmp_path / private, public=tmp_path / public, kid="new")
        assert list(tmp_path.iterdir()) == []


def test_a_key_id_cannot_be_reused(tmp_path: Path) -> None:
    public = tmp_path / "public.json"
    new(private=tmp_path / "one.json", public=public, kid="same")
    with pytest.raises(InvalidFile, match="has a key named same already"):
        new(private=tmp_path / "two.json", public=public, kid="same")
    assert not (tmp_path / "two.json").exists()


@pytest.mark.parametrize("secret", ["short", "s" * 31])
def test_no_token_is_signed_with_a_secret_that_serve_refuses(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], secret: str
) -> None:
    """In the same words, and without a warning of a library's."""
    monkeypatch.setenv("FOREMIND_AUTH_SECRET", secret)
    said = set()
    for command in (["token", "--user", "ana"], ["serve"]):
        with pytest.raises(UnsafeBinding) as caught:
            app(command, standalone_mode=False)
        said.add(caught.value.message)
    assert said == {"FOREMIND_AUTH_SECRET must have at least 32 bytes."}
    assert capsys.readouterr().out == ""
