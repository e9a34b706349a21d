"""The runtime: pipelines on Spark that keep answering while nodes die."""
