"""The state folder (``TASC_HOME``, default ``.tasc``): one layout, made and checked here, and Dagster's instance in it."""

from tasc_pipeline.home.layout import Home, default_home

__all__ = ["Home", "default_home"]
