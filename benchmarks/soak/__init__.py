"""A soak: a pipeline on the test bed under random failures for hours, and what came of its outputs and its memory."""
