"""The pure decision side: authority and statistics as functions of records and ``as_of``.

No clock, environment, file, socket, Dagster or DuckDB; what is needed comes in as arguments.
"""
