# SPDX-License-Identifier: Apache-2.0
"""TLS with simple_switch_grpc's options: who is let in, and what wrong files are answered with."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import finsy as fy
import grpc
import pytest
from finsy.proto import p4r, p4r_grpc

from tests.softswitch.p4rt import DATA
from tests.softswitch.test_server_process import fails, switch

TIMEOUT_S = 20

pytestmark = pytest.mark.skipif(
    shutil.which("openssl") is None, reason="certificates are made with the openssl command"
)


def openssl(directory: Path, *arguments: str) -> None:
    subprocess.run(
        ["openssl", *arguments], cwd=directory, check=True, capture_output=True, timeout=TIMEOUT_S
    )


def authority(directory: Path, name: str) -> None:
    """A certificate authority of its own: NAME.pem and NAME.key."""
    key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-noenc")
    openssl(
        directory,
        *("req", "-x509", *key, "-subj", f"/CN={name}", "-days", "2"),
        *("-keyout", f"{name}.key", "-out", f"{name}.pem"),
    )


def certificate(directory: Path, name: str, signer: str) -> None:
    """A certificate for this machine, signed by an authority."""
    key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-noenc")
    openssl(
        directory,
        *("req", "-x509", *key, "-subj", f"/CN={name}", "-days", "2"),
        *("-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"),
        *("-addext", "basicConstraints=critical,CA:FALSE"),
        *("-CA", f"{signer}.pem", "-CAkey", f"{signer}.key"),
        *("-keyout", f"{name}.key", "-out", f"{name}.pem"),
    )


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with authorities `ours` and `other`, and certificates that they signed."""
    directory = tmp_path_factory.mktemp("tls")
    for name in ("ours", "other"):
        authority(directory, name)
    certificate(directory, "server", "ours")
    certificate(directory, "client", "ours")
    certificate(directory, "stranger", "other")
    (directory / "garbage.pem").write_text("this is no certificate\n")
    openssl(
        directory,
        *("pkcs8", "-topk8", "-in", "server.key", "-out", "locked.key"),
        *("-passout", "pass:secret"),
    )
    return directory


def options(files: Path, *, certificate: str = "server", key: str = "server") -> list[str]:
    return [
        "--grpc-server-ssl",
        *("--grpc-server-cert", str(files / f"{certificate}.pem")),
        *("--grpc-server-key", str(files / f"{key}.key")),
    ]


def ask(address: str, credentials: Any | None) -> str:
    """Ask for the capabilities: the API version, or the name of the error's code."""
    channel = (
        grpc.insecure_channel(address)
        if credentials is None
        else grpc.secure_channel(address, credentials)
    )
    with channel:
        try:
            answer = p4r_grpc.P4RuntimeStub(channel).Capabilities(
                p4r.CapabilitiesRequest(), timeout=TIMEOUT_S
            )
        except grpc.RpcError as error:
            return str(error.code().name)
    return str(answer.p4runtime_api_version)


def credentials(files: Path, trusted: str, own: str | None = None) -> Any:
    """What a client trusts and, for mutual authentication, who it is."""
    chain = [(files / f"{own}{suffix}").read_bytes() for suffix in (".key", ".pem")] if own else []
    return grpc.ssl_channel_credentials((files / f"{trusted}.pem").read_bytes(), *chain)


def serve(files: Path, *more: str) -> Any:
    return switch("--no-p4", target=[*options(files), *more])


def test_server_side_only(files: Path) -> None:
    with serve(files) as (_, address):
        assert ask(address, credentials(files, "ours")).startswith("1.4")
        # A certificate that nobody asks for is no harm.
        assert ask(address, credentials(files, "ours", "stranger")).startswith("1.4")
        assert ask(address, credentials(files, "other")) == "UNAVAILABLE"
        assert ask(address, None) == "UNAVAILABLE"


def test_mutual(files: Path) -> None:
    authority = ("--grpc-server-cacert", str(files / "ours.pem"))
    with serve(files, *authority, "--grpc-server-with-client-auth") as (_, address):
        assert ask(address, credentials(files, "ours", "client")).startswith("1.4")
        assert ask(address, credentials(files, "ours")) == "UNAVAILABLE"
        assert ask(address, credentials(files, "ours", "stranger")) == "UNAVAILABLE"
        assert ask(address, None) == "UNAVAILABLE"
        # Those who were turned away have done no harm.
        assert ask(address, credentials(files, "ours", "client")).startswith("1.4")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"certificate": "nothing"}, "nothing.pem: No such file"),
        ({"key": "nothing"}, "nothing.key: No such file"),
        ({"certificate": "garbage"}, "are not a PEM certificate and its unencrypted key"),
        ({"key": "client"}, "are not a PEM certificate and its unencrypted key: KEY_VALUES_MISM"),
        ({"key": "locked"}, "are not a PEM certificate and its unencrypted key"),
    ],
)
def test_wrong_files(files: Path, arguments: dict[str, str], says: str) -> None:
    assert says in fails("--no-p4", "--", *LOCAL, *options(files, **arguments))


def test_wrong_authority(files: Path) -> None:
    wrong: Sequence[str] = ("--grpc-server-cacert", str(files / "garbage.pem"))
    error = fails("--no-p4", "--", *LOCAL, *options(files), *wrong)
    assert "garbage.pem holds no PEM certificate" in error


LOCAL = ("--grpc-server-addr", "127.0.0.1:0")


def test_finsy_with_a_certificate(files: Path) -> None:
    """The project's own client, programmed for TLS and nothing else."""
    authority = files / "ours.pem"

    async def session(address: str) -> bool:
        tls = fy.GRPCCredentialsTLS(
            cacert=authority, cert=files / "client.pem", private_key=files / "client.key"
        )
        options = fy.SwitchOptions(
            p4info=DATA / "entities.p4info.txtpb",
            p4blob=DATA / "entities.json",
            device_id=0,
            channel_credentials=tls,
        )
        async with fy.Switch("sw", address, options) as switch:
            return bool(switch.is_primary)

    mutual = ("--grpc-server-cacert", str(authority), "--grpc-server-with-client-auth")
    with serve(files, *mutual) as (_, address):
        assert asyncio.run(asyncio.wait_for(session(address), TIMEOUT_S))
