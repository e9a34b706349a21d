"""Built-in sources: logs, directories, Redis streams and generators. All can be replayed by (task, batch).

A source with fixed content is a pure function (`worldcup98.py`, `day66.py`, `generators.py`). A source whose content arrives
while the pipeline runs is *live* (`live.py`): `files.py` and `redis_stream.py`.
"""
