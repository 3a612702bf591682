"""Parquet parts, DuckDB views, charts and reports: what an analyst reads. Derived from the journal, never the truth.

In Python, one line opens everything::

    from tasc_pipeline.warehouse import connect; con = connect(".tasc")
"""

from tasc_pipeline.warehouse.database import connect

__all__ = ["connect"]
