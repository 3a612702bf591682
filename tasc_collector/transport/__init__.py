"""The only room of the collector from which a byte can leave.

Read in this order: ``addresses`` and ``origins`` (what may be named at all), ``policy`` (what a trust policy allows),
``resolver`` and ``network`` (how a name becomes one pinned socket), ``tls``, ``http1`` (how an answer is framed),
``connection`` (the socket: bytes leave in ``Connection.send``) and ``exchange`` (the order of one call).
"""
