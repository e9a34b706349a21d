"""Monitoring of running pipelines through Redis: written by the runtime, read by pages and scripts; and commands to them.

| module | content |
|---|---|
| `keys.py` | every key, with its cap or expiry |
| `records.py`, `task_records.py`, `codec.py` | the stored records, and their JSON |
| `connection.py`, `server.py`, `embedded.py`, `acl.py` | the address of the monitor: a URL, or an embedded server; its users |
| `writer.py`, `routes.py`, `buffers.py` | `Writer`: writes records outside the data path; where they are stored; its queue |
| `reader.py`, `views.py` | `MonitorReader`: the current state, the history, one incident |
| `sentences.py` | events as plain sentences |
| `collector.py`, `incidents.py`, `figures.py`, `inputs.py` | turn events (`ppa_core/engine/run_events.py`) into records |
| `monitor.py`, `attached.py` | `Monitor`: collector and writer; the same for a driver process, with commands |
| `commands.py`, `signing.py`, `channel.py` | commands from operator to pipeline: signed, at most once, acknowledged, logged |
| `inbox.py`, `refusals.py` | reads the stream of commands, also when flooded; counts refused entries |
| `audit.py`, `private.py` | the audit log, signed and chained; private files with what must not be stored only in Redis |
| `access.py` | the operator's password: its hash, and the limit of attempts |
| `main.py`, `cli.py`, `operating.py` | commands of `python -m monitoring` and `ppa`: parser, those that read, those that act |
| `prometheus.py`, `report.py` | metrics for Prometheus; incident reports in HTML |
| `recorded.py` | a recorded run, for tests and for trying out the monitor |
"""
