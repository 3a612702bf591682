"""How plans become processes and containers. Nothing else in this package starts or signals anything."""
