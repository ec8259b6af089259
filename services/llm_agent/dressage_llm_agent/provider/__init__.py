"""Language models behind one small protocol.

`base` holds the protocol and its values, `litellm_provider` the one adapter (the only module that imports litellm), and
`retrying` what is worth a second try. Everything else of the service sees `Provider` alone.
"""
