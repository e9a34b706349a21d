"""Running a pipeline from a program: its configuration (`config`), checks before the start (`preparing`), `run` (`running`)."""
