from types import SimpleNamespace


class StructuredOutputsParams(SimpleNamespace):
    pass
