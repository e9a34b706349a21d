"""What a running pipeline tells about itself, in Redis: written by the runtime, read by the pages and by scripts.

| module | noun |
|---|---|
| `keys.py` | every key, with its cap or expiry, and what a week of it takes |
| `records.py`, `codec.py` | what is kept: frozen records, strict JSON in and out |
| `connection.py`, `server.py`, `embedded.py`, `acl.py` | where the monitor is: a url, or an embedded server; its users |
| `writer.py`, `routes.py`, `recent.py` | `Writer`: records go out off the data path, bounded; what was dropped is counted |
| `reader.py`, `views.py`, `figures.py` | `Reader`: the current state, history by time, one incident; figures |
| `sentences.py` | an event as a plain sentence |
| `inputs.py`, `collector.py`, `incidents.py` | events of a run (`ppa_core/engine/run_events.py`), turned into records |
| `monitor.py`, `attached.py` | `Monitor`: collector and writer; the same beside a driver process, with commands |
| `commands.py`, `signing.py`, `channel.py` | from operator to pipeline: signed, at most once, acknowledged, audited |
| `inbox.py`, `refusals.py` | the stream of commands, whoever fills it with whatever; what is refused, counted |
| `audit.py`, `private.py` | the audit log, signed and chained; what must be known outside Redis |
| `access.py` | the operator's password: its hash, and how often it may be tried |
| `main.py`, `cli.py`, `operating.py` | commands of `python -m monitoring` and `ppa`: parser, what is shown, what is done |
| `prometheus.py`, `report.py` | for the ecosystem: metrics, incident reports |
| `recorded.py` | a recorded run, for tests and for trying out |
"""
