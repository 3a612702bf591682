"""What commands and assets do: read records, call one function of a package below, write records. No Dagster in here."""
