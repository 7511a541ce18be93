"""The client of the Decisions APIs: typed questions about one input, answered with probabilities and no text.

`protocols.py` has the questions and the wire formats, `backend.py` the engine. Only the engine imports the HTTP
client.
"""
