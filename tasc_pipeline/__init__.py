"""Dagster definitions, warehouse, command line, and the pure decision side in ``control``."""
