"""Sources that ship: logs, directories, Redis streams and generators. All can be read again by (task, batch).

A source whose content is there from the start is a function (`worldcup98.py`, `day66.py`, `generators.py`). One whose content
arrives while the pipeline runs is *live* (`live.py`): `files.py` and `redis_stream.py`.
"""
