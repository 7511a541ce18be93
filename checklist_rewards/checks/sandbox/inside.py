"""The program that every guest runs. It is sent to the guest as text or bytecode, so it cannot import this package. It
imports only modules that Python loads at startup, because any other import takes milliseconds in every guest.

A guest has one of three roles. `program` runs a checklist's program on a text. `code` runs the code under test and
then executes the requests of the tests. `tests` runs the tests, which call functions in the other guest.

A message is eight bytes of length and a payload. Messages between tests and code start with `PASS_ON`; the host
forwards them without reading them. All other messages are for the host.
"""

import builtins
import io
import posix
import sys

CHANNEL = 0
"""The file descriptor of the host, given as the last argument."""
RAN, FAILED, BROKEN, PASS_ON = b"r", b"f", b"b", b"p"
"""First byte of a message: the code completed; it failed; the tests cannot run here with any code; the message is for
the other guest."""
MAX_ERROR_LENGTH = 300
"""Maximum length of an error message in characters."""
OF_THE_CODE = "raised by the code under test"
CHANGEABLE = (list, dict, set, bytearray)
COLLECTIONS: dict = {b"l": list, b"t": tuple, b"e": set, b"z": frozenset}
BUILTIN_TYPES = {kind: name for name, kind in vars(builtins).items() if isinstance(kind, type) and name[0] != "_"}
DATA_TYPES = dict.fromkeys(("complex", "range", "bytearray"), "builtins")
DATA_TYPES |= {"Decimal": "decimal", "Fraction": "fractions"}
DATA_TYPES |= dict.fromkeys(("date", "time", "datetime", "timedelta", "timezone"), "datetime")
"""Other types whose instances are passed as data, with the modules of these types."""


def main():
    """Run the role named by the first message, and report the result."""
    global CHANNEL
    CHANNEL = int(sys.argv.pop())
    vars(builtins).update(exit=sys.exit, quit=sys.exit)  # Python defines them only in interactive sessions
    sys.stdin = io.StringIO()
    role = {"program": run_program, "code": serve_code, "tests": run_tests}[text_of(receive())]
    try:
        report = role()
    except MemoryError:
        report = FAILED + b"out of memory"
    except RecursionError:
        report = FAILED + b"out of stack"
    except BaseException as error:
        report = FAILED + described(error)
    send(report)


def run_program():
    """Run a program and report the return value of its `holds(text)`."""
    names = run(text_of(receive()))
    value = names["holds"](text_of(receive()))
    plain = value is None or isinstance(value, (bool, int, float))
    return RAN + repr(value if plain else type(value).__name__).encode()


def serve_code():
    """Run the code under test, report that it completed, and execute requests of the tests until the host ends this
    guest."""
    end = CodeEnd(run(text_of(receive())))
    send(RAN)
    while True:
        _, *request = end.next_message()
        end.answer(*request)


def run_tests():
    """Run tests. Names that they do not define refer to the code under test."""
    try:
        code = compile(text_of(receive()), "<tests>", "exec")
    except (SyntaxError, ValueError) as error:
        return BROKEN + described(error)
    try:
        run(code, TestsEnd().defined(tuple(names_in(code))))
    except SystemExit as error:  # unittest.main() ends with it
        return FAILED + described(error) if error.code else RAN
    except (ImportError, Unsendable) as error:
        return (FAILED if OF_THE_CODE in getattr(error, "__notes__", ()) else BROKEN) + described(error)
    return RAN


def run(source, names=()):
    """Execute source code as the main module, with some names already defined. Returns all names of the module."""
    module = sys.modules["__main__"] = type(sys)("__main__")
    module.__dict__.update(names)
    exec(compile(source, "<code>", "exec") if isinstance(source, str) else source, module.__dict__)
    return module.__dict__


def names_in(code):
    """The names that a code object uses, without builtins."""
    names = {name for name in code.co_names if not hasattr(builtins, name) and not name.startswith("__")}
    return names.union(*(names_in(inner) for inner in code.co_consts if isinstance(inner, type(code))))


def described(error):
    """The type and message of an error, shortened."""
    return f"{type(error).__name__}: {error}"[:MAX_ERROR_LENGTH].encode("utf-8", "replace")


def text_of(payload):
    """Decode a payload as text."""
    return payload.decode("utf-8", "surrogatepass")


def receive():
    """Receive the next message."""
    return read(int.from_bytes(read(8), "big"))


def read(size):
    """Read bytes from the host. Ends the guest if the host has closed the channel."""
    parts = []
    while size:
        part = posix.read(CHANNEL, size)
        if not part:
            posix._exit(1)
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


def send(payload):
    """Send a message."""
    left = memoryview(len(payload).to_bytes(8, "big") + payload)
    while left:
        left = left[posix.write(CHANNEL, left) :]


class Unsendable(TypeError):
    """The tests pass a value to the code that is neither data nor a function."""


class End:
    """One end of the connection between tests and code. It sends requests to the other end and executes the requests
    that it receives.

    Data is passed by value, as plain Python data. All other objects remain in their guest; the other end gets a
    [`Remote`].
    """

    def __init__(self):
        self.mine, self.numbers, self.remotes = [], {}, {}
        self.data, self.at = b"", 0

    def ask(self, operation, /, *arguments, **keywords):
        """Execute an operation at the other end. Raises the exception that it raises there."""
        send(PASS_ON + self.encode(["do", operation, arguments, keywords]))
        while True:
            kind, *message = self.next_message()
            if kind == "do":
                self.answer(*message)
            elif kind == "raised":
                raise carried(operation, *message)
            else:
                value, changed = message
                for place, contents in changed.items() if operation == "call" else ():
                    refill(arguments[place], contents)
                return value

    def next_message(self):
        """Receive the next message. An invalid message must not raise an error that has a meaning in the tests."""
        try:
            kind, *message = self.decode(receive())
            if len(message) == {"do": 3, "done": 2, "raised": 2}[kind]:
                return kind, *message
        except Exception:
            pass
        raise RuntimeError("invalid message")

    def answer(self, operation, arguments, keywords):
        """Execute a request of the other end, and send the result: a value and changed arguments, or an error."""
        try:
            before = {i: self.encode(value) for i, value in enumerate(arguments) if isinstance(value, CHANGEABLE)}
            value = self.do(operation, *arguments, **keywords)
            changed = {i: arguments[i] for i, old in before.items() if self.encode(arguments[i]) != old}
            reply = self.encode(["done", value, changed])
        except Exception as error:
            lineage = [kind.__name__ for kind in type(error).__mro__]
            reply = self.encode(["raised", lineage, str(error)[:MAX_ERROR_LENGTH]])
        send(PASS_ON + reply)

    def do(self, operation, /, *arguments, **keywords):
        """Execute an operation for the other end."""
        raise NotImplementedError

    def number(self, value):
        """The number that identifies an object of this end at the other end."""
        if id(value) not in self.numbers:
            self.numbers[id(value)] = len(self.mine)
            self.mine.append(value)
        return self.numbers[id(value)]

    def encode(self, value):
        """Encode a value as bytes."""
        parts: list[bytes] = []
        self.write_value(value, parts.append)
        return b"".join(parts)

    def write_value(self, value, write):
        """Write a value: a letter for its type, a number or a name, a semicolon, and its content."""
        name = type(value).__name__
        if value is None or value is True or value is False:
            write(b"c%b;" % repr(value).encode())
        elif isinstance(value, int):
            write(b"i%x;" % value)
        elif isinstance(value, float):
            write(b"f%b;" % float.hex(value).encode())
        elif isinstance(value, str):
            data = value.encode("utf-8", "surrogatepass")
            write(b"s%d;%b" % (len(data), data))
        elif isinstance(value, bytes):
            write(b"b%d;%b" % (len(value), value))
        elif isinstance(value, dict):
            write(b"d%d;" % len(value))
            for pair in value.items():
                self.write_value(pair, write)
        elif isinstance(value, (list, tuple, set, frozenset)):
            write(b"%b%d;" % (next(key for key, kind in COLLECTIONS.items() if isinstance(value, kind)), len(value)))
            for part in value:
                self.write_value(part, write)
        elif DATA_TYPES.get(name) == type(value).__module__:
            write(b"m%b;" % name.encode())
            self.write_value(value.__getnewargs__() if name == "complex" else value.__reduce_ex__(3)[1], write)
        elif type(value) is Remote:
            write(b"y%d;" % value._remote_number)
        elif type(value) is type and (known := BUILTIN_TYPES.get(value)):
            write(b"k%b;" % known.encode())
        else:
            write(b"o%d;" % self.number(value))

    def decode(self, data):
        """Decode a value written by [`encode`]."""
        self.data, self.at = data, 0
        value = self.read_value()
        if self.at != len(data):
            raise ValueError("more than one value")
        return value

    def read_value(self):
        """Read a value."""
        letter, word = self.cut(1), self.cut(self.data.index(b";", self.at) - self.at).decode()
        self.at += 1
        if letter == b"c":
            return {"None": None, "True": True, "False": False}[word]
        if letter == b"i":
            return int(word, 16)
        if letter == b"f":
            return float.fromhex(word)
        if letter == b"s":
            return text_of(self.cut(int(word)))
        if letter == b"b":
            return self.cut(int(word))
        if letter == b"d":
            return dict(self.read_value() for _ in range(int(word)))
        if letter == b"m":
            parts = self.read_value()
            if any(type(part) is Remote for part in parts):
                raise ValueError(f"{word} of an object that is not data")
            return getattr(__import__(DATA_TYPES[word]), word)(*parts)
        if letter == b"k":
            return {name: kind for kind, name in BUILTIN_TYPES.items()}[word]
        if letter == b"y":
            return self.mine[int(word)]
        if letter == b"o":
            return self.remotes.setdefault(int(word), Remote(self, int(word)))
        return COLLECTIONS[letter]([self.read_value() for _ in range(int(word))])

    def cut(self, size):
        """Read the next `size` bytes."""
        self.at += size
        return self.data[self.at - size : self.at]


class CodeEnd(End):
    """The end of the code under test. It executes all requests of the tests."""

    def __init__(self, names):
        super().__init__()
        self.names = names

    def do(self, operation, /, *arguments, **keywords):
        """Execute one of `OPERATIONS`, or "defined"."""
        return {**OPERATIONS, "defined": self.defined}[operation](*arguments, **keywords)

    def defined(self, names):
        """The values of those `names` that the code defines; for modules, the names of the modules."""
        values = {name: self.names[name] for name in names if name in self.names}
        modules = {name: value.__name__ for name, value in values.items() if isinstance(value, type(sys))}
        return {name: value for name, value in values.items() if name not in modules}, modules


class TestsEnd(End):
    """The end of the tests. The code may only call functions that the tests have passed to it. If it could create
    objects here, it could control the results of comparisons."""

    def do(self, operation, function, /, *arguments, **keywords):
        """Call a function that the tests have passed to the code."""
        if operation != "call" or not any(function is known for known in self.mine):
            raise TypeError("only functions passed by the tests can be called")
        return function(*arguments, **keywords)

    def number(self, value):
        """The number of a function. Raises [`Unsendable`] for any other object."""
        if not callable(value):
            raise Unsendable(f"a {type(value).__name__} is passed to the code; only data and functions are allowed")
        return super().number(value)

    def defined(self, names):
        """The values of those `names` that the code defines. Modules that it has imported are imported again here."""
        values, modules = self.ask("defined", names)
        for name, module in modules.items():
            try:
                values[name] = __import__(module, fromlist=["x"])
            except Exception:
                continue
        return {name: values[name] for name in names if name in values}


class Remote:
    """An object at the other end. It is equal only to itself and supports neither order nor arithmetic, because the
    code under test would control their results."""

    __slots__ = ("_remote_end", "_remote_number")
    _remote_end: End
    _remote_number: int

    def __init__(self, end, number):
        object.__setattr__(self, "_remote_end", end)
        object.__setattr__(self, "_remote_number", number)

    def __call__(self, /, *arguments, **keywords):
        """Call the object at the other end."""
        return self._remote_end.ask("call", self, *arguments, **keywords)

    def __bool__(self):
        return True


def asking(operation):
    """Create a method of [`Remote`] that executes an operation at the other end."""
    return lambda self, *arguments: self._remote_end.ask(operation, self, *arguments)


OPERATIONS: dict = {
    "call": lambda function, /, *arguments, **keywords: function(*arguments, **keywords),
    "getattr": getattr,
    "setattr": setattr,
    "getitem": lambda value, key: value[key],
    "setitem": lambda value, key, new: value.__setitem__(key, new),
    "len": len,
    "iter": iter,
    "next": next,
    "str": str,
    "repr": repr,
    "instancecheck": lambda kind, value: isinstance(value, kind),
}
for name in OPERATIONS.keys() - {"call"}:
    setattr(Remote, f"__{name}__", asking(name))


def refill(collection, contents):
    """Replace the contents of a list, set, dict or bytearray."""
    collection.clear()
    collection.extend(contents) if isinstance(collection, (list, bytearray)) else collection.update(contents)


def carried(operation, lineage, message):
    """The exception to raise here for one at the other end: its nearest built-in base class. StopIteration is used
    only for `next`, because elsewhere it would end loops of the tests early."""
    error: Exception = RuntimeError(message)
    for kind in (vars(builtins).get(name) for name in lineage):
        stops = kind in (StopIteration, StopAsyncIteration)
        if isinstance(kind, type) and issubclass(kind, Exception) and (operation == "next" or not stops):
            try:
                error = kind(message)
                break
            except TypeError:
                continue  # the constructor needs more than a message
    error.add_note(OF_THE_CODE)
    return error


if __name__ == "__main__":
    main()
