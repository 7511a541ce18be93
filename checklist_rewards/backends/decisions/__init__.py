"""The client of the Decisions APIs: typed questions about one input, answered with probabilities and no text.

`question.py` is the question, `protocols.py` the wire formats and `backend.py` the engine. Only the engine imports the
HTTP client.
"""
