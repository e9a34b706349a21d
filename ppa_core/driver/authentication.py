"""Authentication of Spark sessions: every port that a session listens on requires its secret.

Spark's RPC and block manager execute what they receive, and other users of a machine can connect to loopback too. So
`spark.authenticate` is on; without a cluster, Spark creates the secret and keeps it in memory. Without a cluster, Python
processes are reached through Unix sockets in a private folder, otherwise through TCP with a secret from their environment.
"""

from __future__ import annotations

import os
import secrets
import stat
from copy import copy
from pathlib import Path
from typing import Any

from py4j import protocol  # type: ignore[import-untyped]
from py4j.java_gateway import CallbackConnection, JavaObject  # type: ignore[import-untyped]
from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import ensure_callback_server_started

from ppa_core.errors import BadInput, Unavailable

_SWITCH = "spark.authenticate"
_SECRET = "spark.authenticate.secret"
_TOKEN_SECONDS, _TOKEN_BYTES = 10.0, 200
"""Limits for a callback connection until it has sent the token."""
_LONGEST_FOLDER = 64
"""Characters; the path of a Unix socket can have 107, and Spark appends 43."""


def protection(folder: Path) -> dict[str, str]:
    """The settings of a session without a cluster, with its files and sockets in a private folder."""
    settings = {_SWITCH: "true"}
    if "SPARK_LOCAL_DIRS" not in os.environ:
        settings["spark.local.dir"] = str(folder)
    if len(os.fsencode(folder)) <= _LONGEST_FOLDER:
        settings |= {"spark.python.unix.domain.socket.enabled": "true", "spark.python.unix.domain.socket.dir": str(folder)}
    return settings


def check_cluster(conf: SparkConf, master: str, trusted: bool) -> None:
    """Refuse a standalone cluster without authentication, unless its network is trusted, and a secret that everyone can read.

    `conf` has all settings that Spark would use, including those of spark-defaults.conf.
    """
    defaults = _defaults_file()
    if not _is_on(conf):
        if trusted:
            return
        raise BadInput(
            f"--master {master}",
            f"{_SWITCH} is not on: anyone who can connect to the master, its workers or this driver can run code there; turn "
            f"it on, with a secret, in {defaults} and on the cluster (see docs/cluster.md), or use --trusted-network if nobody "
            "else can connect",
        )
    if not conf.get(_SECRET):
        raise BadInput(
            str(defaults), f"{_SWITCH} is on, but {_SECRET} is missing; set it to the cluster's (see docs/cluster.md)"
        )
    if defaults.is_file() and defaults.stat().st_mode & stat.S_IROTH and _SECRET in defaults.read_text(errors="replace"):
        raise BadInput(str(defaults), "every user of this machine can read the secret in it; run 'chmod o= FILE'")


def check_session(context: SparkContext, trusted: bool) -> None:
    """Refuse a session that this process opened earlier without authentication: Spark would reuse it."""
    if not trusted and not _is_on(context.getConf()):
        raise Unavailable(f"a Spark session without {_SWITCH} is open in this process; stop it and start the pipeline again")


def protect_callbacks(gateway: Any) -> None:
    """Require a token on Python's server for calls from the JVM; the JVM gets it over its own, authenticated connection.

    PySpark starts that server without a token, because py4j drops the JVM's token when the port changes
    (`PythonClient.copyWith`).
    """
    parameters = gateway.callback_server_parameters
    if parameters.auth_token is not None:
        return
    token = secrets.token_hex(32)
    parameters.auth_token = token  # before the server listens; a running server uses it for the next connection
    ensure_callback_server_started(gateway)  # type: ignore[no-untyped-call]
    callbacks = gateway._callback_server
    callbacks._create_connection = lambda link, stream: _Callbacks(
        callbacks.pool, stream, link, callbacks.gateway_client, parameters, callbacks
    )
    server, jvm = JavaObject("GATEWAY_SERVER", gateway._gateway_client), gateway.jvm
    known, owner = server.getCallbackClient(), server.getGateway()
    client = jvm.py4j.PythonClient(
        owner, None, known.getPort(), known.getAddress(), 0, jvm.java.util.concurrent.TimeUnit.SECONDS,
        jvm.javax.net.SocketFactory.getDefault(), server, True, known.getReadTimeout(), token,
    )  # fmt: skip
    field = jvm.java.lang.Class.forName("py4j.Gateway").getDeclaredField("cbClient")
    field.setAccessible(True)
    field.set(owner, client)


class _Callbacks(CallbackConnection):  # type: ignore[misc]
    """A connection for calls from the JVM that must send the token first, within a time and size limit: py4j would wait
    forever and buffer whatever it receives."""

    def run(self) -> None:
        parameters = copy(self.callback_server.callback_server_parameters)
        known = (f"{protocol.AUTH_COMMAND_NAME}\n", f"{parameters.auth_token}\n", protocol.END_COMMAND_PART)
        try:
            self.socket.settimeout(_TOKEN_SECONDS)
            said = b"".join(self.input.readline(_TOKEN_BYTES) for _ in known)
            if not secrets.compare_digest(said, "".join(known).encode()):
                raise PermissionError("not the JVM")
            self.socket.sendall(protocol.OUTPUT_VOID_COMMAND.encode())
            self.socket.settimeout(None)
        except OSError:  # a wrong token, or none in time
            self.close(True)
            return
        parameters.auth_token = None  # already checked
        self.callback_server_parameters: Any = parameters
        super().run()


def _is_on(conf: SparkConf) -> bool:
    return (conf.get(_SWITCH) or "").strip().lower() == "true"


def _defaults_file() -> Path:
    folder = os.environ.get("SPARK_CONF_DIR") or str(Path(os.environ.get("SPARK_HOME", "$SPARK_HOME")) / "conf")
    return Path(folder) / "spark-defaults.conf"
