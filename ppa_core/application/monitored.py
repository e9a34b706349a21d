"""A run with a monitor attached."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from monitoring import server
from monitoring.attached import Attached
from monitoring.connection import Address
from monitoring.records import NodeInfo, PipelineInfo
from monitoring.signing import Signer
from ppa_core.application.config import RunConfig
from ppa_core.driver.config import Config
from ppa_core.driver.output_log import OutputLog
from ppa_core.planners import Plan
from ppa_core.queries import Query
from ppa_core.terminal.output import note
from ppa_core.topology import to_dict


@contextmanager
def attach(wanted: RunConfig, config: Config, query: Query, chosen: Plan, embedded: Any) -> Iterator[Attached]:
    """Attach a monitor to a run. The embedded monitor is started if it is not running."""
    directory = Path(wanted.monitor_directory)
    with ExitStack() as stack:
        address = Address.find(wanted.monitor_url, directory, patched=wanted.patched_redis)
        address.check()
        if address.url is None:
            started = stack.enter_context(server.start(directory))
            started.keep()
            address = started.address
            note(f"monitor: {'started' if started.owned else 'found'} in {directory}")
        info = PipelineInfo(
            query.name, config.run_id, config.query, to_dict(query.pipeline.topology()),
            tuple(NodeInfo(node.name, node.rack, node.role) for node in config.nodes), round(time.time(), 3),
            query.pipeline.batch_seconds, config.planner, config.metric, config.budget, tuple(sorted(chosen.tasks)), chosen.of,
            config.settings.deadline,
        )  # fmt: skip
        log = OutputLog(config.folder / "outputs", config.keep)
        attached = Attached(address, info, query.accuracy, log, Signer.find(directory), embedded)
        stack.callback(attached.close)
        yield attached
